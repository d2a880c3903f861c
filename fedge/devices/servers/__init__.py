"""A server on the virtual clock: its model, its rule for arrivals, and the rule's state.

A part of the room `fedge.devices`, with the same imports allowed.
"""
