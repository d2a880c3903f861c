"""Memberships of leaves from one cloud step to the next: changes proposed, tried, adopted or put off.

A part of the room `fedge.clustering`, with the same imports allowed.
"""
