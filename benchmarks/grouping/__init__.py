"""Groups of leaves, planted or not: level and power of the default method."""
