"""The sections of a configuration, one module per concern: each option's name, default, unit and range.

`fedge.config.registers.option` checks an option, `fedge.config.registers.parts` has the parts to choose from,
`fedge.config.registers.choices` other words, `fedge.config.contradictions` checks of sections together.

A part of the room `fedge.config`, with the same imports allowed.
"""
