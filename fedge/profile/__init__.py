"""Where a run's memory goes: ``fedge profile`` (docs/memory.md).

A short run is carried out twice: once as it is, watched from outside (`watch`: shortages of the machine), and
once under memray in the server and every worker (askers for memory). `allocators` reads the captures,
`result` keeps the findings, `command` does it all, `page` shows them.

Imports only from below: `launch` and rooms below it.
"""
