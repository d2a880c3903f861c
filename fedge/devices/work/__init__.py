"""Jobs of devices: one job, a round of them, and the ledger of all.

A part of the room `fedge.devices`, with the same imports allowed.
"""
