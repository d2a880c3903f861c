"""Likeness of leaves: evidence about them, questions to clients for the rest of it, similarities.

A part of the room `fedge.clustering`, with the same imports allowed.
"""
