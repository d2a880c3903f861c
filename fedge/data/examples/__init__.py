"""Data sets of tasks other than classification, without a download: numbers, notes, characters."""
