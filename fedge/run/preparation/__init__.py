"""Preparation of a run: its parts, data and folder, or the run to resume, before the first round.

A part of the room `fedge.run`, with the same imports allowed.
"""
