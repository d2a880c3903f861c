"""Fedge beside other simulators, in one run, on the same work: `make bench-peers`.

A module per peer, each with a contestant that takes its turns (`benchmarks.common.take_turns`): it carries
out one round per turn and says how many steps its clients took and what their mean loss was. Peers need an
environment of their own (requirements.txt beside this file); Fedge and the plain references run in it, too.
"""
