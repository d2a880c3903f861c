"""Commands of `fedge` that belong to no other room: runs, lists, the demonstration.

Imports only from below: `doctor`, `profile`, `sweep` and `use`, and rooms below them.
"""
