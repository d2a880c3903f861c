"""Networks: Fedge's own and the user's, their initial weights, and their state as arrays.

A part of the room `fedge.training`, with the same imports allowed.
"""
