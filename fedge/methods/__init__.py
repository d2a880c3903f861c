"""Methods of federated learning, one file each.

`methods.toml` lists them by name (printed by ``fedge methods``); nothing outside this folder names one.

Imports only from below: `clustering` and rooms below it.
"""
