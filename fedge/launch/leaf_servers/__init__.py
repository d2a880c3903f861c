"""Leaf servers as processes: with their own clients, with SuperNodes, or for a whole subtree.

A part of the room `fedge.launch`, with the same imports allowed.
"""
