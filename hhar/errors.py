"""The error class of this package for users' mistakes: its message is always a single line."""


class HharError(ValueError):
    """A file, option or download breaks a rule.

    The message is one line: the name, the rule, the value and the next step.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    def _render_traceback_(self) -> list[str]:
        """Traceback for Jupyter: the message alone."""
        return [f"{type(self).__name__}: {self}"]
