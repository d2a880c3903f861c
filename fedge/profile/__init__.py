"""Where a run's memory goes: ``fedge profile`` (docs/memory.md).

A short run is carried out twice: once as it is, watched from outside (`watch`: what the machine lacks), and
once under memray in the server and every worker (who asked for it). `allocators` reads the captures, `result`
keeps what was found, `command` does it all, `page` is what a person looks at.

Imports only from below: `launch` and rooms below it.
"""
