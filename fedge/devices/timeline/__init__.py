"""Virtual time: the clock, queues, transfers over shared links, and the log of real arrivals.

A part of the room `fedge.devices`, with the same imports allowed.
"""
