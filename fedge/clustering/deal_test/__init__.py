"""The deal test: whether it matters which leaf a client belongs to, and which groups the leaves form.

A part of the room `fedge.clustering`, with the same imports allowed.
"""
