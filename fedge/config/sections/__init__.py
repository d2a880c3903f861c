"""Sections of the configuration, one module per concern: each option's name, default, unit and range.

`fedge.config.registers.option` checks a single option, `fedge.config.contradictions` all sections together.
The allowed names are in `fedge.config.registers.parts` and, for options without a part, in
`fedge.config.registers.choices`.

A part of the room `fedge.config`, with the same imports allowed.
"""
