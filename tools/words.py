"""Words per 1,000 that make prose read translated; first words of docstrings; stilted words of messages.

python -m tools.words [FILE.py | FILE.md …]
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
WATCHED = ("what", "that", "it", "who", "which")
# a summary names its subject; these words begin one that does not
RIDDLES = re.compile(r"(?:Yield|Tell) what\b|(?:Return|What|Who|Whom|Whose|Whoever|Which|That|Do so)\b")
# words of messages with plain equivalents: fix, again, no client, anyone, others, a number, resume, is at
STILTED = re.compile(
    r"\b(?:mend(?:s|ed)?|anew|nobody|whoever|other ones|so many|go(?:es)? on (?:with|after)|says? itself"
    r"|stands? (?:under|together))\b"
)
_WORD = re.compile(r"[A-Za-z]+(?:['’][a-z]+)?")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def docstrings(source: str) -> list[str]:
    """Docstrings of a module, its classes and its functions."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = (ast.get_docstring(node) for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))
    return [text for text in texts if text]


def comments(source: str) -> Iterator[str]:
    """Comments of a module, without their "#"."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("#: ")


def messages(source: str) -> Iterator[str]:
    """Texts in a module's code: errors, notes, help, meanings of options; no docstrings."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def per_thousand(texts: Iterable[str]) -> tuple[int, dict[str, float]]:
    """Number of words, and of each watched word per 1,000 of them; code in backquotes is left out."""
    counts = Counter(word.lower() for text in texts for word in _WORD.findall(_CODE.sub(" ", text)))
    total = counts.total()
    return total, {word: 1000 * counts[word] / max(total, 1) for word in WATCHED}


def riddles(sources: Iterable[Path]) -> list[str]:
    """Docstrings whose first words do not name a subject, as "file: first line"."""
    return [
        f"{path}: {docstring.splitlines()[0]}"
        for path in sources
        for docstring in docstrings(path.read_text(encoding="utf-8"))
        if RIDDLES.match(docstring)
    ]


def stilted(sources: Iterable[Path]) -> list[str]:
    """Messages with a stilted word, as "file: message"."""
    return [
        f"{path}: {text.strip()}"
        for path in sources
        for text in messages(path.read_text(encoding="utf-8"))
        if STILTED.search(text)
    ]


def main(paths: list[str]) -> None:
    """Print a row per kind of text, docstrings whose first words name no subject, and stilted messages."""
    files = [Path(path) for path in paths] or [
        *sorted((ROOT / "fedge").rglob("*.py")), *sorted((ROOT / "hhar").rglob("*.py")),
        *sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md",
    ]  # fmt: skip
    code = [path for path in files if path.suffix == ".py"]
    sources = [path.read_text(encoding="utf-8") for path in code]
    texts = {
        "docstrings": [text for source in sources for text in docstrings(source)],
        "comments": [text for source in sources for text in comments(source)],
        "pages": [path.read_text(encoding="utf-8") for path in files if path.suffix == ".md"],
    }
    print(f"{'':12}{'words':>8}" + "".join(f"{word:>8}" for word in WATCHED))
    for name, kind_texts in texts.items():
        total, shares = per_thousand(kind_texts)
        print(f"{name:12}{total:8}" + "".join(f"{shares[word]:8.1f}" for word in WATCHED))
    print(*riddles(code), *stilted(code), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
