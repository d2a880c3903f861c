"""Measurements of a global round, and the rows made of them.

A part of the room `fedge.rounds`, with the same imports allowed.
"""
