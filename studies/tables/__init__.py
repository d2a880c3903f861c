"""Published tables, repeated: a folder each, with settings as published, settings that are cut, and reported numbers.

    make table-NAME                          # NAME: a folder here
    make table-NAME SETTINGS=as-published    # hours to days on two cores

`reported` reads what a paper says, `measures` reads the same out of runs, `section` puts both side by side,
`settings` says what was cut and why, `data` makes the files, `networks` and `deals` are what papers have
and Fedge has not.
"""
