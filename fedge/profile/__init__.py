"""Profile of a run's memory: ``fedge profile`` (docs/memory.md).

A short run is carried out twice: once unchanged, with its memory sampled from outside (`watch`), and once
with memray in the server and every worker, which shows the allocating code. `allocators` reads memray's
captures, `result` stores the findings, `page` shows them, and `command` does it all.

Imports only from below: `launch` and rooms below it.
"""
