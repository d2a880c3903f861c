"""Data sets of tasks that are no classification, which need no download: numbers, notes, characters."""
