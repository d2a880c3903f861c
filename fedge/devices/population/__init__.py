"""Devices: their speed, their presence over time, and the selection of one for the next job.

A part of the room `fedge.devices`, with the same imports allowed.
"""
