"""Sections of a run's report, one module each: accuracy, clients, clustering, gate, time, memory, ….

Part of the room `fedge.report`, with the same permitted imports.
"""
