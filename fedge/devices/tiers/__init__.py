"""Servers above the leaves on the virtual clock, and groups of leaves with a shared model.

A part of the room `fedge.devices`, with the same imports allowed.
"""
