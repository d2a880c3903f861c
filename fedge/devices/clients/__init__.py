"""Real clients behind the devices: training ahead of the clock, evaluations, probes.

A part of the room `fedge.devices`, with the same imports allowed.
"""
