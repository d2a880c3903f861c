"""Methods of federated learning, one file each: what a client does, and where needed what its leaf does.

`methods.toml` lists them by name (``fedge methods`` prints it); nothing outside this folder names one.

Imports only from below: `clustering` and what is under it.
"""
