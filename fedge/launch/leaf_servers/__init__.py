"""Leaf servers as processes: with clients of their own, with SuperNodes, or a whole subtree.

A part of the room `fedge.launch`, with the same imports allowed.
"""
