"""How a leaf combines replies: checks, Flower's strategies and their state, quorums.

A part of the room `fedge.leaf`, with the same imports allowed.
"""
