"""Measurements of a global round, and the table rows made from them.

A part of the room `fedge.rounds`, with the same imports allowed.
"""
