"""Networks: Fedge's own and the user's, their first weights, and their state as arrays.

A part of the room `fedge.training`, with the same imports allowed.
"""
