"""The sections of a configuration, one module per concern: each option's name, default, unit and range.

`fedge.config.option` checks an option, `fedge.config.parts` has the parts to choose from,
`fedge.config.choices` other words, `fedge.config.contradictions` checks of sections together.

A part of the room `fedge.config`, with the same imports allowed.
"""
