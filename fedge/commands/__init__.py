"""Commands of `fedge` without a room of their own: runs, lists, the demonstration.

Imports only from below: `doctor`, `profile`, `sweep` and `use`, and rooms below them.
"""
