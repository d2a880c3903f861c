"""Registers of parts, and the declaration of one option: the words of which a configuration consists.

A part of the room `fedge.config`, with the same imports allowed.
"""
