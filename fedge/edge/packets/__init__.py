"""Packets between cloud and leaf servers: their contents, and checks of received contents.

A part of the room `fedge.edge`, with the same imports allowed.
"""
