"""Where a run's memory goes: ``fedge profile``.

A short run is carried out twice: once as it is, watched from outside (`watch`: what the machine lacks), and
once under memray in the server and every worker (`capture`: who asked for it). `allocators` reads the
captures, `result` keeps what was found, `command` does it all; the pages are made by
`fedge.profile.page`.
"""
