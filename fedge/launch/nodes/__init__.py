"""Nodes of a deployment: ``fedge node``, its folder, and the output of its ClientApps.

A part of the room `fedge.launch`, with the same imports allowed.
"""
