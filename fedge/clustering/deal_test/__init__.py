"""The deal test: does it matter at which leaf a client is, and into which groups do leaves part?

A part of the room `fedge.clustering`, with the same imports allowed.
"""
