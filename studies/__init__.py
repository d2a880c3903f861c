"""The studies behind docs/results.md: sweep files, and the code for the page on their runs.

`measures` reads numbers out of runs, `result_tables` and `figures` show them, `page` writes docs/results.md.
"""
