"""Cores, memory, threads and descriptors: those of this machine, and those in use.

A part of the room `fedge.process`, with the same imports allowed.
"""
