"""Tables of a run folder: their columns, and their rows on disk.

A part of the room `fedge.records`, with the same imports allowed.
"""
