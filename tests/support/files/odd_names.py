"""Names that are more than names somewhere: in a path, a shell, a page, a table, a terminal."""

import numpy as np

SPECIAL = (
    "",
    " ",
    ".",
    "..",
    "latest",
    "-",
    "-rf",
    "--help",
    "~",
    "~root",
    "/",
    "//",
    "/etc/passwd",
    "../x",
    "a/../../x",
    "a/b",
    "a\\b",
    "C:",
    "CON",
    "nul.txt",
    "a\x00b",
    "a\nb",
    "a\rb",
    "a\tb",
    "\x1b[2J",
    "\u202ea",
    "\u2028",
    "\ud800",
    "é",
    "e\u0301",
    "雪",
    "🎈",
    "x" * 200,
    "x" * 201,
    "x" * 300,
    "雪" * 80,
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned",
    "&& touch pwned",
    "| touch pwned",
    "> pwned",
    "a b",
    "a'b",
    'a"b',
    "a*b",
    "a?b",
    "[a]",
    "{a,b}",
    "!x",
    "#x",
    "%s",
    "{0}",
    "${HOME}",
    "$HOME",
    "a=b",
    "a,b",
    "=1+1",
    "@x",
    "+x",
    "<script>",
    "a.toml",
    ".hidden",
    "a:b",
    "a#b",
    "manifest.json",
    "sweep.html",
    "-seed1",
    "seed1",
    "__proto__",
    "a\x7f",
    "\xa0",
    "\u200b",
    "a.",
)
LETTERS = "ab/.\\-~$`'\" \n\x00;|&<>*?=:é雪\u202e"


def odd_name(rng):
    """A name: one of those above, some of them in a row, or letters that are drawn."""
    how = rng.integers(3)
    if how == 0:
        return str(SPECIAL[rng.integers(len(SPECIAL))])
    if how == 1:
        return "".join(SPECIAL[rng.integers(len(SPECIAL))] for _ in range(rng.integers(1, 4)))
    return "".join(LETTERS[rng.integers(len(LETTERS))] for _ in range(rng.integers(1, 12)))


def odd_names(count, seed):
    """So many names, all of the special ones among them."""
    rng = np.random.default_rng([243, seed])
    return [*SPECIAL, *(odd_name(rng) for _ in range(count - len(SPECIAL)))]
