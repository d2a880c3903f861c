"""The error class of this package for users' mistakes: its message is always a single line."""


class HharError(ValueError):
    """A file, option or download breaks a rule.

    The message is one printable line: the name, the rule, the value and the next step.
    """

    def __init__(self, message: str) -> None:
        line = " ".join(message.split())
        super().__init__("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line))

    def _render_traceback_(self) -> list[str]:
        """Traceback for Jupyter: the message alone."""
        return [f"{type(self).__name__}: {self}"]
