"""The report of a run, one module per section: accuracy, clients, clustering, gate, time, memory, ….

A part of the room `fedge.report`, with the same imports allowed.
"""
