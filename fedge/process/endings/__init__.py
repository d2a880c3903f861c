"""Endings of a process: exit codes and signals, a parent's end, a stall, leftovers removed.

A part of the room `fedge.process`, with the same imports allowed.
"""
