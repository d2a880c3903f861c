"""Extension showing examples of docstrings (``>>>``) as code on the site, not as Markdown quotations."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*?(?=^\s*$|\Z)", re.DOTALL | re.MULTILINE)


class Examples(griffe.Extension):
    """Put every example between fences."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """A docstring with each example, up to the next empty line, between fences."""
    return _EXAMPLE.sub(lambda match: f"```pycon\n{match.group().rstrip()}\n```", docstring)
