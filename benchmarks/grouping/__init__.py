"""Groups of leaves that are found, or should not be: level and power of the default method."""
