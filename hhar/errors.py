"""The one error of this package for users' mistakes: always a single line."""


class HharError(ValueError):
    """A file, option or download is not as it must be.

    The message is one line: the name, the rule, the value, the next step.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    def _render_traceback_(self) -> list[str]:
        """The one line for Jupyter."""
        return [f"{type(self).__name__}: {self}"]
