"""The form of a refusal: one line, with the next step."""

LONGEST = 1000  # characters, paths apart


def check_refusal(error, *named):
    """Assert that an error is one line with a next step; `named` are paths that it may quote."""
    said = str(error)
    assert ";" in said, said
    assert len(said) < LONGEST + sum(len(str(path)) for path in named), said
    assert "\n" not in said, said
