"""Packets between cloud and leaf servers: what each holds, and checks of what another machine tells.

A part of the room `fedge.edge`, with the same imports allowed.
"""
