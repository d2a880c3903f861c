"""The sections of a configuration, one module per concern: each option's name, default, unit and range.

How an option is checked stands in `fedge.config.option`, the parts to choose from in `fedge.config.parts`,
other words in `fedge.config.choices`, what sections must not say together in `fedge.config.contradictions`.

A part of the room `fedge.config`, and imports what that may.
"""
