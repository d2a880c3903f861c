"""Projects: pyproject.toml as `flwr run` reads it, the files packaged with Fedge, a new folder.

A part of the room `fedge.launch`, with the same imports allowed.
"""
