"""Packets between cloud and leaf servers: their content, and checks of received content.

A part of the room `fedge.edge`, with the same imports allowed.
"""
