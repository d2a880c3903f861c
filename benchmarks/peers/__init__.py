"""Fedge and other simulators, in one run, on the same work: `make bench-peers`.

There is a module per peer, each with a contestant taking turns (`benchmarks.common.take_turns`): it carries
out one round per turn, and reports its clients' steps and mean loss. Peers need their own environment
(requirements.txt beside this file); Fedge and the plain references run in it, too.
"""
