"""Likeness of leaves: evidence about them, the questions clients must answer for it, similarities.

A part of the room `fedge.clustering`, with the same imports allowed.
"""
