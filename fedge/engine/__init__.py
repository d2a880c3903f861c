"""Engines beside Flower's own: what drives clients when `flwr run` does not."""
