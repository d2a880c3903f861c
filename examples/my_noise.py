"""A random change of training windows."""


def louder(x, rng, most=2.0):
    """Windows (B, C, T) float32, each made louder or quieter."""
    return x * rng.uniform(1 / most, most, size=(len(x), 1, 1)).astype("float32")
