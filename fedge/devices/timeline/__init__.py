"""Virtual time: the clock, queues, transfers that share links, and the log of real arrivals.

A part of the room `fedge.devices`, with the same imports allowed.
"""
