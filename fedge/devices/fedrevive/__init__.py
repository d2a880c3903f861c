"""FedRevive: stale updates give way to a student of recent models, distilled without data.

A part of the room `fedge.devices`, with the same imports allowed.
"""
