"""Section on memory: totals by role, and peaks."""

import polars as pl

from fedge.console.palette import colour, dashes
from fedge.records.reading.reader import RunData
from fedge.report.html.page import PageSection, Panel
from fedge.report.html.svg import integer_ticks, legend_below, new_figure
from fedge.report.html.tables import table, text_of

# column → its name in sentences, in the order of their mention
_MEASURES = {
    "rss_mib": "resident memory",
    "uss_mib": "memory of its own (USS)",
    "cuda_allocated_mib": "memory on its GPU in tensors",
    "cuda_reserved_mib": "memory on its GPU held by PyTorch",
}
_ROLES = {
    "server": "the server",
    "worker": "a worker",
    "trainer": "a process that trains for a worker",
    "node": "a program of a SuperNode",
    "ray": "one of Ray's own processes",
    "other": "another process that the run has started",
}
_COUNTS = {"threads": "threads", "fds": "open files"}


def memory_section(run: RunData) -> PageSection:
    """Memory by role, with the peaks named."""
    if run.memory.is_empty():
        return PageSection("Memory", ["Memory was not measured."])
    text = [
        " ".join(peak_sentence(run, column) for column in _measured_columns(run, _MEASURES)),
        "Resident memory counts pages that processes share in each of them; USS counts pages of the process "
        "alone, and is measured as often as 0.1 % of the time allows.",
    ]
    if "node" in run.memory["role"]:
        text.append("Nodes have measured themselves, each with its last reply of a round.")
    panels = [memory_panel(run, "rss_mib", "Resident memory by role")]
    if _measured_columns(run, ("uss_mib",)):
        panels.append(memory_panel(run, "uss_mib", "Memory of their own (USS) by role"))
    return PageSection("Memory", text, [*panels, peaks_panel(run)])


def _measured_columns(run: RunData, columns: dict[str, str] | tuple[str, ...]) -> list[str]:
    """Columns of memory.csv among `columns` that have a number."""
    present = run.memory.columns
    return [column for column in columns if column in present and run.memory[column].count() > 0]


def peak_of(run: RunData, column: str, role: str | None = None) -> dict[str, object]:
    """Row of memory.csv, of one role or of any, with the largest number in a column."""
    memory = run.memory.drop_nulls(column)
    if role is not None:
        memory = memory.filter(pl.col("role") == role)
    return memory.sort(column, "global_round", "pid", descending=[True, False, False]).row(0, named=True)


def peak_sentence(run: RunData, column: str) -> str:
    """Sentence on the process with the largest number in a column."""
    peak = peak_of(run, column)
    role = _ROLES.get(str(peak["role"]), str(peak["role"]))
    return (
        f"Most {_MEASURES[column]} had {role} (process {_process_name(peak)}) in round "
        f"{peak['global_round']}: {peak[column]:,.0f} MiB."
    )


def _process_name(peak: dict[str, object]) -> str:
    """Process of a row of memory.csv, with its machine if not the server's."""
    machine = peak.get("machine")
    return f"{peak['pid']} on {machine}" if machine else str(peak["pid"])


def memory_panel(run: RunData, column: str, title: str) -> Panel:
    """A column of memory.csv for every role over rounds, summed over its processes."""
    per_role = (
        run.memory.drop_nulls(column)
        .group_by("role", "global_round", maintain_order=True)
        .agg(mib=pl.col(column).sum(), processes=pl.len(), largest=pl.col(column).max())
    )
    figure, axes = new_figure()
    roles = per_role["role"].unique(maintain_order=True).to_list()
    for index, role in enumerate(roles):
        role_rows = per_role.filter(pl.col("role") == role)
        axes.plot(
            role_rows["global_round"], role_rows["mib"], color=colour(index), linestyle=dashes(index),
            label=role, marker="o" if len(role_rows) == 1 else None,
        )  # fmt: skip
    axes.set_xlabel("global round")
    axes.set_ylabel("MiB")
    axes.set_ylim(0, 1.1 * float(per_role["mib"].to_numpy().max()))
    integer_ticks(axes)
    legend_below(figure, axes)
    rows = []
    for role in roles:
        role_rows = per_role.filter(pl.col("role") == role)
        top = role_rows.sort("mib", descending=True).row(0, named=True)
        rows.append(
            (
                role,
                top["processes"],
                top["mib"],
                top["global_round"],
                role_rows["largest"].max(),
                role_rows["mib"][-1],
            )
        )
    headers = ("role", "processes", "peak MiB, all", "in round", "peak MiB, one process", "at the end")
    return Panel(title, table(headers, rows), figure, "Summed over the role's processes.")


def peaks_panel(run: RunData) -> Panel:
    """Table of each role's peaks in one process, with their rounds."""
    rows = []
    for column, name in (_MEASURES | _COUNTS).items():
        if column not in _measured_columns(run, (column,)):
            continue
        roles = run.memory.drop_nulls(column)["role"].unique(maintain_order=True).to_list()
        for role in roles:
            peak = peak_of(run, column, role)
            rows.append((name, role, peak[column], peak["global_round"], _process_name(peak)))
    return Panel("Peaks of one process", table(("what", "role", "most", "in round", "process"), rows))


def peak_text(run: RunData) -> tuple[str, str] | None:
    """Largest sum over all processes of a round, and its round; None without measurements."""
    if run.memory.is_empty():
        return None
    top = run.memory.group_by("global_round").agg(pl.col("rss_mib").sum()).sort("rss_mib").row(-1, named=True)
    return f"{text_of(top['rss_mib'])} MiB", f"all processes, in round {top['global_round']}"
