"""Costs by size: many devices, many leaves, many leaf servers."""
