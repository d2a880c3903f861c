"""FedRevive: stale updates are partly replaced by a student distilled from recent models without data.

A part of the room `fedge.devices`, with the same imports allowed.
"""
