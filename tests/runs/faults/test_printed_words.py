"""Words of a foreign run folder on a terminal: no command prints a control character of theirs."""

import json

import polars as pl
import pytest
from run_folders import round_result, write_run

from fedge.cli import main
from fedge.records.tables.model_tables import CLIENT_MODELS

WORD = "odd\x1b[2J\x1b]0;title\x07\r\u202e\u2028word"
KEPT = ("status", "started")  # without which a folder is no run, or has no place in a list
TEXTS = ("user", "users", "device", "class", "classes")  # columns of partition.csv
ODD_NAME = "run-\x1b]0;2\x07"


def spoilt(value):
    """JSON with `WORD` in place of every text that a person or another machine may choose."""
    if isinstance(value, dict):
        return {key: spoilt(part) for key, part in value.items()}
    if isinstance(value, list):
        return [spoilt(part) for part in value]
    return WORD if isinstance(value, str) else value


@pytest.fixture(scope="module", params=["all words", "words beside the task and the options"])
def runs(request, tmp_path_factory):
    """A folder of two runs with control characters in their files, one of them in its name, too."""
    folder = tmp_path_factory.mktemp("words")
    kept = KEPT if request.param == "all words" else (*KEPT, "task", "config", "engine")
    for seed, name in ((1, "run-1"), (2, ODD_NAME)):
        rounds = [round_result(n, [5, 6, None if n == 2 else 7, 8]) for n in (1, 2)]
        run = write_run(
            folder / name, rounds, seed, status="failed", reason="gone", remarks=["one"], warnings=["two"]
        )
        spoil_manifest(run / "manifest.json", kept)
        spoil_tables(run)
        (run / "run.log").write_text(f"INFO {WORD}\n")
    return folder


def spoil_manifest(path, kept):
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(spoilt(manifest) | {key: manifest[key] for key in kept if key in manifest}))


def spoil_tables(run):
    partition = pl.read_csv(run / "partition.csv")
    there = [pl.lit(WORD).alias(name) for name in TEXTS if name in partition.columns]
    partition.with_columns(there).write_csv(run / "partition.csv")
    steps = [json.loads(line) for line in (run / "clusters.jsonl").read_text().splitlines()]
    (run / "clusters.jsonl").write_text("".join(json.dumps(spoilt(step)) + "\n" for step in steps))
    own = [
        [number, client, client // 2, f"{kind}{WORD}", 10, 0.5, 1.0, 0]
        for number in (1, 2) for client in range(4) for kind in "ab"
    ]  # fmt: skip
    pl.DataFrame(own, schema=CLIENT_MODELS.names, orient="row").write_csv(run / CLIENT_MODELS.path)


COMPARE = ["compare", "run-1", ODD_NAME, "--output", "compare.html", "--format"]
COMMANDS = {
    "runs": ["runs"], "status": ["status", "run-1"], "report": ["report", "run-1"],
    "compare": [*COMPARE, "text"], "as Markdown": [*COMPARE, "markdown"], "as LaTeX": [*COMPARE, "latex"],
    "resume": ["resume", "run-1"], "predict": ["predict", "run-1", "nowhere.npz"],
    "export": ["export", "run-1", "--torchscript", "x"], "export-run": ["export-run", "run-1", "copy"],
}  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_command_prints_no_control_character_of_a_run_folder(runs, words, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    told = [str(runs / word) if word.startswith("run-") else word for word in words]
    main([*told, *(["--runs-dir", str(runs)] if words == ["runs"] else [])])
    said = "".join(capsys.readouterr())
    odd = sorted({c for c in said if not c.isprintable() and c != "\n"})
    assert not odd
    assert said
