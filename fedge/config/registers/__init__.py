"""Registers of built-in and users' parts, and the declaration of an option.

A part of the room `fedge.config`, with the same imports allowed.
"""
