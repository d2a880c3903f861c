"""Hooks of mkdocs.yml: pages of the site made from code, README and notebooks."""

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from fedge.cli import _build_parser
from tools.notebooks import as_markdown

ROOT = Path(__file__).parents[1]
_ROOT_PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
PUBLIC = {
    "Runs": (
        "fedge.launch.simulate.simulate", "fedge.records.reading.reader.load_run",
        "fedge.records.reading.reader.RunData",
        "fedge.report.compare.compare", "fedge.config.registers.option.ConfigError",
    ),
    "Data": (
        "fedge.datasets.frames.from_pandas", "fedge.datasets.images.from_images",
        "fedge.datasets.images.from_partitions", "hhar.windows.window_file.Windows",
    ),
    "Methods of clients and leaves": (
        "fedge.algorithm.algorithm.Algorithm", "fedge.algorithm.client.Client", "fedge.algorithm.descent.Fit",
        "fedge.algorithm.algorithm.Sent", "fedge.algorithm.leaf_part.LeafPart",
    ),
    "Groups of leaves": (
        "fedge.clustering.cloud_part.CloudPart", "fedge.clustering.cloud_part.Family",
        "fedge.clustering.likeness.evidence.Evidence", "fedge.clustering.registry.Grouping",
        "fedge.clustering.registry.method", "fedge.clustering.signals.signal",
    ),
    "Tasks": ("fedge.tasks.task.Task", "fedge.tasks.task.Score"),
    "Other parts": (
        "fedge.callbacks.callback.Callback", "fedge.compression.compressor.Compressor",
        "fedge.devices.population.fleet.Fleet", "fedge.devices.servers.rules.Arrival",
        "fedge.serving.gate.Paired",
        "fedge.trackers.tracker.Tracker",
    ),
}  # fmt: skip
_PUBLIC_NAMES = frozenset(name for names in PUBLIC.values() for name in names)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_EXAMPLE = re.compile(r"^\[`(examples/\w+\.py)`\]\(\.\./\1\)$", re.MULTILINE)  # a line that is only a link
_SEARCH = '<div class="md-search" data-md-component="search" role="dialog"'
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_SCROLLABLE = (  # as the theme's script wraps tables, but from the start
    '<div class="md-typeset__scrollwrap" tabindex="0" role="group" aria-label="Table">'
    '<div class="md-typeset__table">'
)
_COMMANDS = "<!-- made from the code: commands -->"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the packages to the navigation."""
    sections = {title: entries for section in config.nav or () for title, entries in section.items()}
    (api,) = (entry["Python"] for entry in sections["Look up"] if "Python" in entry)
    api += [f"api/{room}.md" for room in _rooms()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages stored elsewhere, or in no file."""
    sources = {"index.md": ROOT / "README.md", **{page: ROOT / name for name, page in _ROOT_PAGES.items()}}
    pages = {page: _rebase_links(path.read_text(encoding="utf-8")) for page, path in sources.items()}
    pages |= {f"notebooks/{path.stem}.md": as_markdown(path) for path in _notebooks()}
    pages |= {"api/index.md": _api_index()} | {f"api/{room}.md": _api_page(room) for room in _rooms()}
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Make wide tables scrollable by keyboard: in the theme they scroll, but do not take the focus."""
    return _TABLE.sub(rf"{_SCROLLABLE}\g<0></div></div>", html)


def on_post_page(output: str, **_: Any) -> str:
    """Name the theme's dialog for screen readers."""
    return output.replace(_SEARCH, f'{_SEARCH} aria-label="Search"')


def on_post_template(output_content: str, **_: Any) -> str:
    """The same on the page for a missing address."""
    return on_post_page(output_content)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Insert the parts made from code, and point links to files of the repository at their pages."""
    shown = _EXAMPLE.sub(_example_code, markdown.replace(_COMMANDS, commands()))
    return _LINK.sub(_titled_link, _replace_outside_links(shown))


# --- links --------------------------------------------------------------------------------------------


def _rebase_links(text: str) -> str:
    """A page of the root folder, with links as in pages of docs/."""
    return _LINK_OR_IMAGE.sub(lambda match: f"{match[1]}({_rebase_target(match[2])})", text)


_LINK_OR_IMAGE = re.compile(r"(!?\[[^\]]+\])\(([^)\s]+)\)")


def _rebase_target(target: str) -> str:
    """A target relative to the root folder, made relative to docs/."""
    if "://" in target or target.startswith("#"):
        return target
    if target == "docs/notebooks":
        return f"notebooks/{_notebooks()[0].stem}.md"
    return target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"


def _replace_outside_links(markdown: str) -> str:
    """Point links out of docs/ at their page, or leave only their text."""
    return _LINK.sub(_page_link, markdown)


def _page_link(match: re.Match[str]) -> str:
    text, target = match.groups()
    if not target.startswith("../"):
        return match.group()
    name, _, anchor = target.removeprefix("../").partition("#")
    if name in _ROOT_PAGES:
        return f"[{text}]({_ROOT_PAGES[name]}{'#' * bool(anchor)}{anchor})"
    return text if (ROOT / name).exists() else match.group()  # a missing target breaks the build


def _example_code(match: re.Match[str]) -> str:
    """Show an example if a page links to its file."""
    path = ROOT / match[1]
    return f'```python title="{path.name}"\n{path.read_text(encoding="utf-8").rstrip()}\n```'


def _titled_link(match: re.Match[str]) -> str:
    """Name a page by its title if a link names it by its file: [clustering.md](clustering.md)."""
    text, target = match.groups()
    page = ROOT / "docs" / target.partition("#")[0].removeprefix("../")  # relative to a page in a folder
    if not re.fullmatch(r"(docs/)?[\w-]+\.md", text) or not page.is_file():
        return match.group()
    title = page.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ")
    return f"[{title}]({target})"


# --- pages --------------------------------------------------------------------------------------------


def commands() -> str:
    """Every command of `fedge` with its arguments, as Markdown."""
    parser = _build_parser()
    return "\n\n".join(_subcommands(parser, ""))


def _subcommands(parser: argparse.ArgumentParser, prefix: str) -> list[str]:
    """The commands under a parser; `prefix` are the words before them, and a space."""
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [
        _command_text(f"{prefix}{action.dest}", action.help or "", subparsers.choices[action.dest])
        for subparsers in actions
        for action in subparsers._choices_actions
    ]


def _command_text(name: str, summary: str, parser: argparse.ArgumentParser) -> str:
    """One command: its purpose, and a row per argument, or its subcommands."""
    level = "#" * (2 + name.count(" "))
    lines = [f"{level} fedge {name}", "", f"{summary[:1].upper()}{summary[1:]}.", ""]
    if subcommands := _subcommands(parser, f"{name} "):
        return "\n\n".join(["\n".join(lines).rstrip(), *subcommands])
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    if not actions:
        return "\n".join([*lines, "No arguments."])
    lines += ["| argument | meaning |", "|---|---|"]
    return "\n".join(
        [*lines, *(f"| {_argument_text(action)} | {_help_text(action)} |" for action in actions)]
    )


def _argument_text(action: argparse.Action) -> str:
    """An argument as it is written."""
    value = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
    value = " ".join(value) if isinstance(value, tuple) else value
    if action.choices:
        value = " or ".join(map(str, action.choices))
    if not action.option_strings:
        return f"`{value}`" + {"?": " (optional)", "+": " (one or more)"}.get(str(action.nargs), "")
    return ", ".join(f"`{word} {value}`" if value else f"`{word}`" for word in action.option_strings)


def _help_text(action: argparse.Action) -> str:
    """Meaning of an argument, from its help."""
    text = (action.help or "") % {"default": action.default, "dest": action.dest}
    return text.replace("|", "\\|")


def _notebooks() -> list[Path]:
    """The notebooks, in reading order."""
    return sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def _rooms() -> list[str]:
    """Packages with public names."""
    return sorted(path.parent.name for path in (ROOT / "fedge").glob("*/__init__.py") if _public_names(path))


def _public_names(init: Path) -> dict[str, list[str]]:
    """Module → public names of a package, from its call of ``lazy.attach``."""
    for node in ast.walk(ast.parse(init.read_text(encoding="utf-8"))):
        if isinstance(node, ast.keyword) and node.arg == "submod_attrs":
            return dict(ast.literal_eval(node.value))
    return {}


def _api_index() -> str:
    """Page of the public names: those of `import fedge`, and those for writing custom parts."""
    parts = [
        "# Python",
        "The names of `import fedge`: runs, data, and the parts that your own code is made of "
        "([extend.md](../extend.md), [own-method.md](../own-method.md)). The packages behind them have a "
        "page each; what is not in a package's list may change at any time.",
    ]
    for title, names in PUBLIC.items():
        parts += [f"## {title}", *(f"::: {name}\n    options: {{heading_level: 3}}" for name in names)]
    return "\n\n".join(parts) + "\n"


def _api_page(room: str) -> str:
    """Page of a package: its docstring, then its public names."""
    init = ROOT / "fedge" / room / "__init__.py"
    docstring = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
    return "\n\n".join([f"# fedge.{room}", docstring.replace("``", "`"), *_entries(room, init)]) + "\n"


def _entries(room: str, init: Path) -> Iterator[str]:
    """Yield a directive for every public name of a package."""
    for module, names in _public_names(init).items():
        for name in names:
            if (full_name := f"fedge.{room}.{module}.{name}") in _PUBLIC_NAMES:
                yield f"[`{name}`][{full_name}] is described among the [public names](index.md)."
            else:
                yield f"::: {full_name}"
