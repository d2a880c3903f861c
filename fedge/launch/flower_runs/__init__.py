"""Flower from outside: `flwr run` and its processes, SuperLinks, the preconditions of Ray's start.

A part of the room `fedge.launch`, with the same imports allowed.
"""
