"""Report of one run, ``report.html``, from its run folder alone, in any state."""

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import polars as pl

from fedge.config.registers.option import ConfigError
from fedge.config.tree import names_of_tiers, parse_tree
from fedge.console.tiers import tiers_between
from fedge.records.folder import REPORT
from fedge.records.outputs import damaged_tables
from fedge.records.reading.costs import virtual_seconds
from fedge.records.reading.reader import RunData, load_run
from fedge.report.damaged_tables import intact_tables
from fedge.report.html.page import Notice, Page, PageSection, Tile, write_page
from fedge.report.html.svg import figure_style
from fedge.report.html.tables import bytes_text, seconds_text, text_of, total
from fedge.report.sections.accuracy import accuracy_section
from fedge.report.sections.clients import clients_section, last_clients, sole_users_of, worst_first
from fedge.report.sections.clustering import clustering_section
from fedge.report.sections.compression import compression_sections
from fedge.report.sections.costs import cost_sections
from fedge.report.sections.data import windows_section
from fedge.report.sections.devices import device_sections, device_tiles
from fedge.report.sections.gate import decisions, gate_section
from fedge.report.sections.memory import memory_section, peak_text
from fedge.report.sections.mobility import mobility_sections
from fedge.report.sections.privacy import privacy_sections
from fedge.report.sections.setup import reproduce_section, setup_section
from fedge.report.sections.time import time_section
from fedge.report.sections.tree import tree_sections
from hhar.quantity import quantity

_LOG_LINES = 30
_NEED_ROUNDS = (accuracy_section, clients_section, clustering_section, gate_section)
_ALL_RUNS = (windows_section, time_section, memory_section, setup_section, reproduce_section)


def write_report(folder: str | Path, path: Path | None = None) -> Path:
    """Write the report of a run, by default to report.html in its folder; returns its path.

    Raises:
        RunFolderError: there is no run in `folder`, or its tables are damaged.
        OSError: the file cannot be written.
    """
    return write_report_of(load_run(folder), path)


def write_report_of(run: RunData, path: Path | None = None) -> Path:
    """Write the report of a loaded run; see `write_report`."""
    path = path or run.folder / REPORT
    with intact_tables([run]), figure_style():
        write_page(run_page(run), path)
    return path


def run_page(run: RunData) -> Page:
    """Page of a run; to be created and rendered within `figure_style`."""
    makers: list[Callable[[RunData], PageSection]] = list(_ALL_RUNS)
    if not run.rounds.is_empty():
        makers = [*_NEED_ROUNDS, *makers]
    sections = [make(run) for make in makers]
    if not run.rounds.is_empty():
        sections[len(_NEED_ROUNDS) : len(_NEED_ROUNDS)] = [
            *mobility_sections(run),
            *compression_sections(run),
            *privacy_sections(run),
        ]
        sections[1:1] = tree_sections(run)  # after the scores
        sections[0:0] = device_sections(run)  # the main results on the virtual clock
        sections[1:1] = cost_sections(run)
    if run.status != "completed":
        sections.append(log_section(run))
    return Page(
        title=run.name,
        lead=lead(run),
        badge=run.status,
        notices=_run_notices(run),
        tiles=tiles(run) if not run.rounds.is_empty() else (),
        sections=sections,
        footer=f"Made from {run.name} at {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC.",
    )


def lead(run: RunData) -> list[str]:
    """Lead of the page: run, data and dates."""
    manifest, config = run.manifest, run.config
    sizes = manifest.get("clients_per_leaf", [])
    servers = f"{quantity(len(sizes), 'leaf')}{_servers_between(config)}"
    clients = f"{quantity(sum(sizes), 'client')} under {servers}, " if sizes else ""
    if manifest.get("unseen_clients"):
        clients += f"{quantity(len(manifest['unseen_clients']), 'unseen client')} among them, "
    planned = config.get("num-server-rounds", "?")
    data = manifest.get("data", {}).get("name", "data not loaded yet")
    return [
        f"{_method_parts(run)}: {clients}{len(run.rounds)} of {quantity(planned, 'global round')}, "
        f"model {config.get('train.model', '?')}, seed {manifest.get('seed', '?')} "
        f"(from {manifest.get('seed_source', '?')}).{_kernel(run)}",
        f"Data: {data}. Started {_time(manifest.get('started'))}{_end_time(run)}.",
    ]


def _servers_between(config: Mapping[str, Any]) -> str:
    """Servers between leaves and cloud in words; empty with two tiers, and if the record is not a tree."""
    try:
        tree = parse_tree(str(config.get("hierarchy.tree", "")))
        return tiers_between(tree, names_of_tiers(str(config.get("hierarchy.names", "")), tree.tiers))
    except ConfigError:
        return ""


def _kernel(run: RunData) -> str:
    """Sentence on the kernel of CPU steps; empty for folders of earlier versions."""
    name = run.manifest.get("kernel", {}).get("name")
    sentences = {None: "", "torch": " Steps by PyTorch."}
    return sentences.get(name, f" Steps by the {name} kernel.")


_NO_ALGORITHM = "fedavg"  # clients' option for plain training


def _method_parts(run: RunData) -> str:
    """The enabled parts of the method, in words."""
    config = run.config
    sizes = run.manifest.get("clients_per_leaf", [])
    rule = str(config.get("asynchrony.rule", "off"))
    parts = [str(config.get("leaf.strategy", "?"))] if rule == "off" else [f"{rule} on a virtual clock"]
    if rule != "off" and len(sizes) > 1:
        parts.append(f"{config.get('asynchrony.cloud-rule', '?')} at the cloud")
    algorithm = str(config.get("train.algorithm", _NO_ALGORITHM))
    parts += [algorithm] if algorithm != _NO_ALGORITHM else []
    parts += [name for name in ("scaffold", "cluster", "gate") if config.get(f"{name}.enabled")]
    kind = "Flat" if len(sizes) == 1 else "Hierarchical"
    return f"{kind} federated learning ({' + '.join(parts)})"


def _time(iso: object) -> str:
    """An ISO time as 2025-01-31 12:00 UTC."""
    try:
        return f"{datetime.fromisoformat(str(iso)):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return "at an unknown time"


def _end_time(run: RunData) -> str:
    """Time at which the run ended, or last wrote a file."""
    if run.manifest.get("ended"):
        return f", ended {_time(run.manifest['ended'])}"
    return f", last wrote at {run.last_written:%Y-%m-%d %H:%M:%S} UTC"


def _run_notices(run: RunData) -> list[Notice]:
    """Notices to read before any number, most important first."""
    notices = []
    manifest = run.manifest
    if run.status == "failed":
        notices.append(Notice("error", f"The run failed: {manifest.get('reason', 'see run.log')}"))
    if manifest.get("data", {}).get("synthetic"):
        notices.append(Notice("warning", "The data are synthetic: scores say nothing about people."))
    if run.status == "running":
        notices.append(
            Notice(
                "note",
                "The run has not ended: it is in progress, or was killed. Numbers are of the rounds so far.",
            )
        )
    if run.status == "partial":
        notices.append(Notice("warning", "Clients failed during the run; rounds continued without them."))
    notices += [Notice("note", text) for text in manifest.get("remarks", [])]
    damaged = damaged_tables(run.folder, run.manifest)
    notices += [Notice("warning", f"{line}.") for line in damaged]
    return notices + [Notice("note", f"{problem}.") for problem in run.problems]


def tiles(run: RunData) -> list[Tile]:
    """The main results in a few numbers."""
    final, seconds = run.rounds.row(-1, named=True), total(run.rounds, "seconds")
    label, test, further = run.score.label, f"test_{run.score.name}", run.scores[1:2]
    results = [
        Tile(
            f"Test {label}",
            text_of(final[f"{test}_mean"]),
            _spread(final[f"{test}_std"]),
        ),
        _worst_tile(run),
        *_unseen_tiles(run, final),
        *(Tile(_capitalise(s.label), text_of(final[f"{s.name}_mean"]), "mean over clients") for s in further),
        *device_tiles(run),
        *_virtual_tiles(run, final),
        *_grouping_tiles(run, final),
        Tile(
            "Time" if run.versions.is_empty() else "Real time",
            seconds_text(seconds),
            f"{seconds_text(seconds / len(run.rounds))} per round",
        ),
        Tile(
            "Traffic",
            bytes_text(total(run.rounds, "uplink_bytes", "downlink_bytes")),
            "clients and leaves, both ways",
        ),
    ]
    peak = peak_text(run)
    return results + ([Tile("Peak memory", *peak)] if peak else [])


def _virtual_tiles(run: RunData, final: dict[str, Any]) -> list[Tile]:
    """Virtual time and energy of rounds with devices; empty on the virtual clock."""
    seconds = virtual_seconds(run)
    if seconds is None or not run.versions.is_empty():
        return []
    joules = final.get("joules")
    energy = "power of the devices unknown" if joules is None else f"{text_of(joules)} J of the devices"
    return [Tile("Virtual time", seconds_text(float(seconds[-1])), energy)]


def _capitalise(text: str) -> str:
    """Text with its first letter capitalised, for a tile."""
    return text[:1].upper() + text[1:]


def _spread(std: float | None) -> str:
    """Line below the mean."""
    return f"mean of clients, std {text_of(std)}"


def _unseen_tiles(run: RunData, final: dict[str, Any]) -> list[Tile]:
    """Score on unseen users, if there are unseen clients."""
    unseen = f"unseen_{run.score.name}"
    if final[f"{unseen}_mean"] is None:
        return []
    worst = f"mean of unseen clients, worst {text_of(final[f'{unseen}_worst'])}"
    return [Tile("On unseen users", text_of(final[f"{unseen}_mean"]), worst)]


def _clusters_detail(run: RunData, final: dict[str, Any]) -> str:
    """Line below the number of clusters."""
    if run.truth is None:
        return "in the last round"
    groups = [labels for first, labels in run.eras if first <= final["global_round"]][-1]
    return f"in the last round; {quantity(len(set(groups)), 'group')} planted, ARI {text_of(final['ari'])}"


def _worst_tile(run: RunData) -> Tile:
    """The worst known client; unseen clients have their own tile."""
    known = last_clients(run).filter(pl.col("unseen_client").fill_null(0) == 0)
    scored = worst_first(run, known)
    if scored.is_empty():
        return Tile("Worst client", text_of(None))
    row = scored.row(0, named=True)
    user = sole_users_of(run).get(row["client"])
    detail = f"client {row['client']}, leaf {row['leaf']}" + (f", user {user}" if user else "")
    return Tile("Worst client", text_of(row[f"test_{run.score.name}"]), detail)


def _grouping_tiles(run: RunData, final: dict[str, Any]) -> list[Tile]:
    """Clusters and gate; on the virtual clock, which has no gates, only clusters if there are any."""
    clusters = Tile("Clusters", text_of(final["num_clusters"]), _clusters_detail(run, final))
    if run.versions.is_empty():
        return [clusters, _gate_tile(run)]
    return [clusters] if final["num_clusters"] > 1 or run.truth is not None else []


def _gate_tile(run: RunData) -> Tile:
    """Number of accepted offers."""
    accepted, rejected = decisions(run)
    if accepted + rejected == 0:
        return Tile("Gate", "off" if not run.config.get("gate.enabled", True) else "no offer")
    return Tile("Gate", f"{accepted} of {accepted + rejected}", "offers taken")


def log_section(run: RunData) -> PageSection:
    """The end of run.log."""
    path = run.folder / "run.log"
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return PageSection(
        "Log", [f"The last lines of {path.name}."], code="\n".join(lines[-_LOG_LINES:]) or "(empty)"
    )
