"""Flower from outside: `flwr run` and its processes, SuperLinks, preconditions of starting Ray.

A part of the room `fedge.launch`, with the same imports allowed.
"""
