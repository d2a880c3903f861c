"""Section on configuration: every option, changed options, versions, and how to repeat the run."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from fedge.config.flat import options
from fedge.process.escape import printable
from fedge.records.reading.reader import RunData
from fedge.report.html.page import PageSection, Panel
from fedge.report.html.tables import table

PLACE_KEYS = ("run-name", "runs-dir", "report")  # options about files, which do not affect results


def setup_section(run: RunData) -> PageSection:
    """Configuration of the run."""
    changed = changed_options(run.config)
    changes = ", ".join(f"{key}={json.dumps(value)}" for key, value in changed.items())
    return PageSection(
        "Configuration",
        [f"Changed from the defaults of this Fedge: {changes or 'nothing'}."],
        [options_panel(run.config), surroundings_panel(run.manifest)],
    )


def changed_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options that differ from their defaults, without the seed and the run's paths."""
    defaults = {key: default for key, (default, _) in options().items()}
    return {
        key: value
        for key, value in config.items()
        if key not in (*PLACE_KEYS, "seed") and defaults.get(key) != value
    }


def options_panel(config: Mapping[str, Any]) -> Panel:
    """All options with their meaning."""
    declared = options()
    rows = []
    for key, value in config.items():
        default, rule = declared.get(key, (None, {"doc": ""}))
        rows.append((key, json.dumps(value), "" if value == default else json.dumps(default), rule["doc"]))
    return Panel("All options", table(("key", "value", "default, if other", "meaning"), rows))


def surroundings_panel(manifest: Mapping[str, Any]) -> Panel:
    """Versions, engine and federation."""
    rows = [(name, version) for name, version in manifest.get("versions", {}).items()]
    rows.append(("engine", str(manifest.get("engine", "–"))))
    rows += [
        (f"federation: {key}", json.dumps(value)) for key, value in manifest.get("federation", {}).items()
    ]
    return Panel("Versions and engine", table(("what", "value"), rows))


def reproduce_section(run: RunData) -> PageSection:
    """The command giving the same bits."""
    data = run.manifest.get("data", {})
    text = [
        "On a CPU, the same configuration and seed give the same models and metrics, bit for bit, on either "
        "engine and any number of workers."
    ]
    if data and not data["synthetic"]:
        text.append(f"The data must have the fingerprint {data['fingerprint']}.")
    return PageSection("How to reproduce", text, code=command(run.manifest))


def command(manifest: Mapping[str, Any]) -> str:
    """Shell command that repeats a run, for a POSIX shell in the folder of its code, if it has any."""
    config = manifest.get("config", {})
    clients = int(manifest.get("federation", {}).get("num-supernodes", 0))
    overrides = " ".join(f"{key}={_toml(value)}" for key, value in changed_options(config).items())
    arguments = [f"SEED={manifest.get('seed')}", "fedge", "run", "."]
    arguments += [] if "clients" in changed_options(config) else ["--clients", str(clients)]
    line = " ".join(arguments) + (f" -c {shlex.quote(overrides)}" if overrides else "")
    part_names = ", ".join(sorted({part["name"] for part in manifest.get("parts", {}).values()}))
    folder_note = f", in the folder of {part_names}" if part_names else ""
    comment = f"# with Fedge {manifest.get('versions', {}).get('fedge', '')}{folder_note}"
    return f"{printable(comment)}\n{line}"  # a line break in a forged name would begin a command


def _toml(value: Any) -> str:
    """An option's value in the form of `-c`."""
    return json.dumps(value, ensure_ascii=False)
