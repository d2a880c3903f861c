"""Published tables, repeated: a folder each, with settings as published and cut, and reported numbers.

    make table-NAME                          # NAME: a folder here
    make table-NAME SETTINGS=as-published    # hours to days on two cores

`reported` reads the numbers of papers, `readings` reads the same out of runs, `section` puts both side by
side, `settings` lists cuts and their reasons, `page` writes docs/tables-of-papers.md. `data` makes window
files; `networks`, `deals` and `turned` are parts of papers missing from Fedge.
"""
