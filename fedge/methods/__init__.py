"""Methods of federated learning, one file each: the client's part, and the leaf's or the cloud's if needed.

`methods.toml` lists them by name (printed by ``fedge methods``); no code outside this folder names one.

Imports only from below: `clustering` and rooms below it.
"""
