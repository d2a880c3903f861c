"""Devices: their speed, their times of presence, and the choice of one for the next job.

A part of the room `fedge.devices`, with the same imports allowed.
"""
