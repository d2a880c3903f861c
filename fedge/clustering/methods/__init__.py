"""Methods of grouping leaves: by a similarity matrix, and published ones.

A part of the room `fedge.clustering`, with the same imports allowed.
"""
