"""The commands of `fedge` that belong to no room of their own: runs, lists, the demonstration.

Imports only from below: `doctor`, `profile`, `sweep` and `use`, and rooms below them.
"""
