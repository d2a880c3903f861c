"""Methods of grouping leaves: from a similarity matrix, and as published.

A part of the room `fedge.clustering`, with the same imports allowed.
"""
