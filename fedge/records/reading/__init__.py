"""Reading a run folder: tables as frames, models as arrays, status, costs, a page in Jupyter.

A part of the room `fedge.records`, with the same imports allowed.
"""
