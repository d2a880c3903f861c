"""Methods of federated learning, one file each: the client's part, and where needed its leaf's.

`methods.toml` lists them by name (printed by ``fedge methods``); nothing outside this folder names one.

Imports only from below: `clustering` and rooms below it.
"""
