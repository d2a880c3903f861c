"""Runs that go on, in this process: the same bits as without a break, and what is refused."""

import csv
import io
import json
import re
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest

from fedge import simulate
from fedge.cli import main
from fedge.config.flat import from_run_config, options
from fedge.config.registers.option import ConfigError
from fedge.process.versions import versions
from fedge.records.lock import RunLock
from fedge.run.preparation import resume
from fedge.run.preparation.resume import (
    CHANGEABLE,
    _refuse_other_config,
    config_differences,
    open_resumption,
    refuse_other_data,
    run_config_of,
)
from hhar import synthetic_windows
from hhar.windows.window_file import save_windows

TINY = {
    "report": False,
    "data.path": "synthetic",
    "train.model": "mlp-tiny",
    "train.local-epochs": 1,
    "seed": 5,
    "num-server-rounds": 4,
}


def carry_out(runs, **changes):
    """Run TINY with changes (``train__lr=1`` for train.lr); returns outcome and what the terminal showed."""
    terminal = io.StringIO()
    config = {**TINY, "runs-dir": str(runs), **{k.replace("__", "."): v for k, v in changes.items()}}
    config = {k.replace("_", "-"): v for k, v in config.items()}
    return simulate(config, terminal=terminal), terminal.getvalue()


def comparable(folder):
    """The bytes that must be equal in equal runs, timing columns left out."""
    found = {"models": (folder / "checkpoints" / "final.safetensors").read_bytes()}
    found["clusters"] = (folder / "clusters.jsonl").read_bytes()
    for name in ("global_rounds", "leaf_rounds", "clients"):
        rows = csv.DictReader((folder / "metrics" / f"{name}.csv").read_text().splitlines())
        found[name] = [
            {k: v for k, v in row.items() if k not in ("seconds", "train_seconds")} for row in rows
        ]
    return found


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """A run of four global rounds."""
    outcome, _ = carry_out(tmp_path_factory.mktemp("four"), run_name="four")
    return outcome.folder


@pytest.fixture
def copy(four, tmp_path):
    """A copy of that run, as if it had been stopped after its last checkpoint."""
    folder = tmp_path / "copy"
    shutil.copytree(four, folder)
    (folder / "checkpoints" / "final.safetensors").unlink()
    (folder / "manifest.json").write_text(json.dumps({**manifest(folder), "status": "running"}))
    return folder


# --- the same bits ------------------------------------------------------------------------------------

VARIANTS = {
    "scaffold, two leaf rounds, cloud every second": {"hierarchy__leaf_rounds": 2, "cluster__every": 2},
    "scaffold on two levels, cloud every second": {
        "hierarchy__leaf_rounds": 2, "cluster__every": 2, "scaffold__levels": 2, "gate__enabled": False,
    },
    "steps of the mean client": {"train__local_steps": "auto", "train__batch_size": 7},
    "two of three clients": {"hierarchy__fraction_train": 0.67, "cluster__tau": 0.98},
    "fedadam": {"leaf__strategy": "fedadam", "scaffold__enabled": False, "gate__enabled": False},
    "median": {"leaf__strategy": "fedmedian", "scaffold__enabled": False},
    "krum, compare updates": {
        "leaf__strategy": "krum", "scaffold__enabled": False, "cluster__signal": "update",
    },
    "unseen clients, planted groups": {
        "partition__unseen_clients": 1, "scenario": "rotate", "cluster__tau": 0.98, "gate__enabled": False,
    },
    "affinity, trials, probes": {
        "cluster__signal": "affinity", "cluster__method": "agglomerative", "cluster__count": "auto",
        "cluster__patience": 2, "cluster__level": 0.5, "cluster__probe_every": 1, "hierarchy__num_servers": 4,
    },
    "a lone leaf whose forks train on": {
        "cluster__signal": "affinity", "cluster__method": "agglomerative", "cluster__count": "auto",
        "cluster__patience": 2, "cluster__level": 0.5, "cluster__min_gain": 9.0, "gate__enabled": False,
        "scenario": "label-permutation", "scenario_sizes": "2,1",
    },
    "a comparison in every third step": {"cluster__regroup_every": 3, "num_server_rounds": 8},
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_a_run_in_two_parts_gives_the_bytes_of_one_in_one(tmp_path, name):
    """Stopped after round 1, and before the last round at the latest; on one worker, then on several."""
    changes = VARIANTS[name]
    rounds = changes.get("num_server_rounds", TINY["num-server-rounds"])
    whole, _ = carry_out(tmp_path / "whole", **changes)
    first, _ = carry_out(tmp_path / "parts", **{**changes, "num_server_rounds": 1})
    for last in (rounds - 1, rounds):
        again, _ = carry_out(tmp_path / "parts", **{**changes, "num_server_rounds": last, "resume": "latest"})
        assert (again.status, again.folder) == ("completed", first.folder)
    assert comparable(again.folder) == comparable(whole.folder)
    assert manifest(again.folder)["remarks"] == manifest(whole.folder)["remarks"]
    assert [entry["after_round"] for entry in manifest(again.folder)["resumed"]] == [1, rounds - 1]
    assert manifest(again.folder)["config"]["num-server-rounds"] == rounds
    assert not list(again.folder.glob("data*"))


ASKING = {
    "cross-losses": {
        "cluster__signal": "cross-loss", "cluster__method": "agglomerative", "cluster__count": "2",
    },
    "own and others": {"cluster__method": "phefl", "scaffold__enabled": False},
}  # fmt: skip


@pytest.mark.parametrize("name", ASKING)
def test_leaves_that_keep_one_model_are_asked_about_it_as_before_a_stop(tmp_path, name):
    """No leaf has three accepted replies: all keep the first model, one object until the run resumes."""
    keeping = {"guard__min_clients": 3, "guard__max_norm_factor": 1.0, "gate__enabled": False}
    changes = {**keeping, **ASKING[name]}
    whole, _ = carry_out(tmp_path / "whole", num_server_rounds=2, **changes)
    assert whole.leaves["kept_model"].to_list() == [1] * 6
    carry_out(tmp_path / "parts", num_server_rounds=1, **changes)
    again, _ = carry_out(tmp_path / "parts", num_server_rounds=2, resume="latest", **changes)
    assert comparable(again.folder) == comparable(whole.folder)
    assert again.servers.equals(whole.servers)


SERVING = {
    "a blend for each leaf": {"cluster__blend": "auto", "cluster__tau": 0.98},
    "own head and BatchNorm": {"personal__layers": "both", "cluster__blend": 0.5, "cluster__every": 2},
    "after a round": {"gate__rule": "after-round", "hierarchy__leaf_rounds": 2},
    "after a round, every second": {
        "gate__rule": "after-round", "cluster__every": 2, "cluster__blend": "auto", "cluster__tau": 0.98,
        "hierarchy__fraction_train": 0.67,
    },
    "one standard error": {"gate__rule": "one-standard-error"},
    "paired": {"gate__rule": "paired", "gate__rule_args__level": 0.2},
    "personal models": {"personal__leaf_rounds": 2, "hierarchy__fraction_train": 0.67},
    "personal models every second round, with moments": {
        "personal__leaf_rounds": 1, "personal__every": 2, "gate__rule": "after-round",
        "leaf__strategy": "fedadam", "scaffold__enabled": False,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SERVING)
def test_stopped_after_round_two_of_four(tmp_path, name):
    """Rounds 3 and 4 are as if nothing had happened, on another number of workers; the last round too."""
    whole, _ = carry_out(tmp_path, run_name="whole", checkpoint__keep=9, **SERVING[name])
    for left in (2, 4):
        folder = tmp_path / f"stopped-{left}"
        shutil.copytree(whole.folder, folder)
        (folder / "checkpoints" / "final.safetensors").unlink()
        (folder / "manifest.json").write_text(json.dumps({**manifest(folder), "status": "running"}))
        for gone in range(left + 1, 5):
            shutil.rmtree(folder / "checkpoints" / f"round-{gone:06}")
        assert main(["resume", str(folder), "--workers", "1"]) == 0
        assert manifest(folder)["resumed"][0]["after_round"] == left
        assert comparable(folder) == comparable(whole.folder)


def test_a_checkpoint_every_third_round_and_at_the_end(tmp_path, four):
    outcome, _ = carry_out(tmp_path, checkpoint__every=3, checkpoint__keep=9)
    names = sorted(path.name for path in (outcome.folder / "checkpoints").iterdir())
    assert names == ["final.safetensors", "round-000000", "round-000003", "round-000004"]
    assert comparable(outcome.folder) == comparable(four)


def test_no_checkpoints_at_all(tmp_path, four):
    outcome, _ = carry_out(tmp_path, checkpoint__every=0)
    assert [path.name for path in (outcome.folder / "checkpoints").iterdir()] == ["final.safetensors"]
    assert comparable(outcome.folder) == comparable(four)
    with pytest.raises(
        ConfigError, match=r"^resume needs an intact checkpoint, but .* has none: it was stopped"
    ):
        carry_out(tmp_path, resume="latest")


def test_a_run_stopped_between_its_last_checkpoint_and_its_end(copy, four):
    """No round is left: models, remarks and final table are those of the whole run."""
    outcome, shown = carry_out(copy.parent, resume=str(copy))
    assert comparable(outcome.folder) == comparable(four)
    assert "resuming " in shown
    assert "round 4/4" not in shown
    assert "all 9 clients: test accuracy" in shown
    assert (manifest(copy)["status"], manifest(copy)["remarks"]) == ("completed", manifest(four)["remarks"])


def test_a_run_that_is_complete_says_so_and_is_left_alone(copy, four):
    for name in ("manifest.json", "checkpoints/final.safetensors"):
        shutil.copy(four / name, copy / name)
    before = {
        path: path.read_bytes() for path in copy.rglob("*") if path.is_file() and path.name != "run.log"
    }
    outcome, shown = carry_out(copy.parent, resume=str(copy))
    assert outcome.status == "completed"
    assert shown.endswith("copy is complete: 4 of 4 global rounds; raise num-server-rounds to continue\n")
    assert {path: path.read_bytes() for path in before} == before


def test_the_command_goes_on_as_the_run_began(copy, four, capsys):
    """`fedge resume`: seed, learning rate and clients from the run, no pyproject.toml is read."""
    shutil.rmtree(copy / "checkpoints" / "round-000004")
    (copy / "metrics" / "clients.csv").open("a").write("5,0,half a ro")
    assert main(["resume", str(copy), "--workers", "2"]) == 0
    assert comparable(copy) == comparable(four)
    assert "after global round 3" in capsys.readouterr().out
    assert main(["resume", str(copy), "-c", "num-server-rounds=5"]) == 0
    assert len((copy / "metrics" / "global_rounds.csv").read_text().splitlines()) == 6
    assert manifest(copy)["seed"] == 5


# --- damage -------------------------------------------------------------------------------------------


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", ["leaves.safetensors", "clients.safetensors", "manifest.json"])
@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(copy, four, damage, name):
    damage(copy / "checkpoints" / "round-000004" / name)
    outcome, shown = carry_out(copy.parent, resume=str(copy))
    named = f"checkpoint {copy}/checkpoints/round-000004 is damaged: {name}"
    (line,) = [line for line in shown.splitlines() if named in line]
    assert line.startswith("note: ")
    assert line.endswith("; resuming from round 3")
    assert named in (copy / "run.log").read_text()
    assert "after global round 3" in shown
    assert comparable(outcome.folder) == comparable(four)
    assert open_resumption(copy).notes == []


def test_a_table_that_lost_rows_goes_back_further(copy, four):
    """As after a power failure: the table ends before the newest checkpoint says."""
    table = copy / "metrics" / "clients.csv"
    rows = table.read_text().splitlines(keepends=True)
    table.write_text("".join(rows[:-1]))
    outcome, shown = carry_out(copy.parent, resume=str(copy))
    assert "round-000004 does not fit: metrics/clients.csv has " in shown
    assert comparable(outcome.folder) == comparable(four)


def test_without_a_whole_checkpoint_nothing_goes_on(copy, capsys):
    for folder in (copy / "checkpoints").glob("round-*"):
        flip(folder / "manifest.json")
    assert main(["resume", str(copy)]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedge: resume needs an intact checkpoint, but ")
    assert all(f"round-00000{n} is damaged" in line for n in (3, 4))


def test_a_damaged_manifest_of_the_run_does_no_harm(copy, four):
    """The checkpoint has a copy."""
    (copy / "manifest.json").write_text('{"status": "run')
    outcome, _ = carry_out(copy.parent, resume=str(copy))
    assert comparable(outcome.folder) == comparable(four)
    assert manifest(copy)["started"] == manifest(four)["started"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"train.lr": 0.9}, "train.lr is not"),
        ({"train.model": "evil:Net", "train.lr": [1]}, "2 options, train.lr among them, are not"),
        ({"checkpoint.keep": 9}, ""),
    ],
)
def test_options_changed_in_the_manifest_are_said_and_not_used(copy, four, changed, said):
    whole = manifest(copy)
    (copy / "manifest.json").write_text(json.dumps({**whole, "config": {**whole["config"], **changed}}))
    notes = open_resumption(copy).notes
    whole_note = f"{said} what the run began with in manifest.json; the checkpoint's are used"
    assert [note for note in notes if "manifest.json" in note] == [whole_note] * bool(said)
    outcome, _ = carry_out(copy.parent, resume=str(copy))
    assert comparable(outcome.folder) == comparable(four)


def test_other_versions_are_said(copy, monkeypatch):
    monkeypatch.setattr(
        "fedge.run.preparation.run_folder.versions", lambda: {**versions(), "fedge-code": "another"}
    )
    _, shown = carry_out(copy.parent, resume=str(copy))
    assert "note: the last bits may differ from here on: fedge-code was " in shown
    assert manifest(copy)["resumed"][0]["versions_changed"]["fedge-code"][1] == "another"


# --- refused ------------------------------------------------------------------------------------------


def refusal(copy, **changes):
    """The line with which the run is refused; nothing in its folder changes."""
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError) as caught:
        carry_out(copy.parent, **{"resume": str(copy), **changes})
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_differing_key_is_named_with_both_values(copy):
    line = refusal(copy, train__lr=0.25, cluster__signal="update", gate__enabled=False, seed=6)
    for words in (
        "train.lr is 0.25, was 0.05",
        'cluster.signal is "update", was "weights"',
        "gate.enabled is false, was true",
        "seed is 6, was 5",
    ):
        assert words in line
    assert "train.momentum" not in line


def test_a_long_value_is_named_by_its_beginning(copy):
    (line,) = [
        line
        for line in config_differences({"train.model": "a" * 5000}, from_run_config(TINY))
        if line.startswith("train.model ")
    ]
    assert "aaa…" in line
    assert len(line) < 300


def test_the_seed_in_force_counts(copy, monkeypatch):
    monkeypatch.setenv("SEED", "9")
    assert "seed is 9, was 5" in refusal(copy)
    monkeypatch.setenv("SEED", "5")
    assert carry_out(copy.parent, resume=str(copy), seed=42)[0].status == "completed"


def test_every_option_either_may_change_or_is_compared(copy):
    """Each option, changed in the record of the checkpoint, is named if it is not in the list."""
    found = open_resumption(copy)
    recorded = found.checkpoint.facts["run"]["config"]
    config = from_run_config({**TINY, "resume": str(copy)})
    for key in options():
        given = run_config_of(found)[key]
        with patch.dict(recorded, {key: "another" if isinstance(given, str) else given + 1}):
            if key in CHANGEABLE:
                _refuse_other_config(found, config, 5)
                continue
            with pytest.raises(ConfigError, match=f", but {re.escape(key)} is "):
                _refuse_other_config(found, config, 5)
    assert "train.threads" not in CHANGEABLE


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"hierarchy.num-servers": 2, "hierarchy.clients-per-server": "5,4"},
        {"hierarchy.tree": "3x3x1"},
        {"hierarchy.tree": "((2,1),(3,3))", "hierarchy.names": "cloud,region,leaf"},
        {"hierarchy.tree": "2x3x*", "cluster.tiers": "region", "hierarchy.names": "cloud,region,leaf"},
    ],
    ids=str,
)
def test_a_run_goes_on_by_what_was_said_at_its_beginning(said, tmp_path):
    """Flower's engine takes only keys of pyproject.toml: nothing that follows from others is among them."""
    config = {**TINY, "num-server-rounds": 1, "runs-dir": str(tmp_path), **said}
    first = simulate(config, terminal=io.StringIO())
    found = open_resumption(first.folder)
    defaults = {key: default for key, (default, _) in options().items()}
    needed = {key for key, value in run_config_of(found).items() if value != defaults[key]}
    assert needed <= {*config, "resume", "run-name", "clients"}
    again = simulate({**run_config_of(found), "num-server-rounds": 2}, terminal=io.StringIO())
    assert (again.status, len(again.rounds)) == ("completed", 2)


def test_what_may_change_may_change(copy, four):
    changed = {
        "guard__start_timeout": 60.0,
        "guard__client_timeout": 60.0,
        "transfer__share_above_mb": 1.0,
        "checkpoint__every": 2,
        "checkpoint__keep": 1,
        "run_name": "another",
    }
    outcome, _ = carry_out(copy.parent, resume=str(copy), **changed)
    assert comparable(outcome.folder) == comparable(four)
    recorded = manifest(copy)["config"]
    assert (recorded["guard.client-timeout"], recorded["checkpoint.every"]) == (60.0, 2)
    assert (recorded["run-name"], recorded["resume"]) == ("four", "")


def test_other_data_are_refused(copy, tmp_path):
    """The path may change, the windows may not."""
    path = save_windows(tmp_path / "other.npz", synthetic_windows(num_users=9))
    line = refusal(copy, data__path=str(path))
    assert "resume needs the data of " in line
    assert "(synthetic HHAR (9 users)); set data.path to that file" in line


@pytest.mark.parametrize(
    ("had_owners", "of_owners", "fix"),
    [
        (False, False, "set data.path to that file"),
        (
            True,
            False,
            "clients had windows of their own: add --federation NAME, or --leaves HOST:PORT --owners",
        ),
        (True, True, "start every client with the windows that it had"),
        (False, True, "add its data.path"),
    ],
)
def test_whose_the_windows_were_decides_what_mends_other_data(copy, had_owners, of_owners, fix):
    found = open_resumption(copy)
    found.checkpoint.facts.update({"told": {"0": "windows"} if had_owners else {}})
    with pytest.raises(ConfigError, match=f"; {re.escape(fix)}$"):
        refuse_other_data(found, "0" * 64, found.run["clients_per_leaf"], of_owners)


PROJECT = """
[tool.flwr.app.components]
serverapp = "fedge.server_app:app"
clientapp = "fedge.client_app:app"
[tool.flwr.federations]
default = "local"
local.options.num-supernodes = 4
"""
DEPLOYED = """
there.address = "127.0.0.1:1"
elsewhere.address = "127.0.0.1:2"
"""


@pytest.mark.parametrize(
    ("federations", "words", "line"),
    [
        (DEPLOYED, [], "this run has SuperNodes; resume it with --federation there or elsewhere"),
        ("", [], "has no federation with an address; resume it with --app and the folder of its project"),
        ("", ["--engine", "inprocess"], "resume needs the data of .*windows of their own: add --federation"),
        ("", ["--federation", "local"], "resume needs the clients of .*use a federation of 9 SuperNodes"),
    ],
    ids=["which", "none", "in process", "local"],
)
def test_a_run_on_supernodes_is_resumed_there_alone(
    copy, tmp_path, capsys, monkeypatch, federations, words, line
):
    """By itself it went on in the default federation, and was refused for its data; in process it waited."""
    real = resume.open_resumption

    def of_owners(folder):
        found = real(folder)
        for told in (found.manifest, found.checkpoint.facts["run"]):
            told |= {"engine": "flower", "federation": {"num-supernodes": 0, "num-cpus": 1, "num-gpus": 0}}
        found.checkpoint.facts["run"]["data"]["fingerprint"] = "0" * 64
        found.checkpoint.facts["told"] = {"0": "windows"}
        return found

    monkeypatch.setattr(resume, "open_resumption", of_owners)
    (tmp_path / "pyproject.toml").write_text(PROJECT + federations)
    assert main(["resume", str(copy), "--app", str(tmp_path), *words]) == 4
    assert re.search(line, capsys.readouterr().err)


def test_data_that_moved_are_the_same(tmp_path):
    path = save_windows(tmp_path / "windows.npz", synthetic_windows(num_users=9))
    first, _ = carry_out(tmp_path, data__path=str(path), num_server_rounds=1)
    path.rename(tmp_path / "moved.npz")
    again, _ = carry_out(
        tmp_path, data__path=str(tmp_path / "moved.npz"), num_server_rounds=2, resume="latest"
    )
    assert again.folder == first.folder


def test_other_clients_are_refused(copy):
    """Six of the nine users, two per leaf."""
    config = {**TINY, "runs-dir": str(copy.parent), "resume": str(copy)}
    with pytest.raises(
        ConfigError, match=r"clients per leaf are \[2, 2, 2\], were \[3, 3, 3\]; use a federation"
    ):
        simulate(config, num_supernodes=6, terminal=io.StringIO())


def test_fewer_rounds_than_are_done_are_refused(copy):
    assert refusal(copy, num_server_rounds=3).startswith(
        "num-server-rounds must be at least 4, the rounds that"
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere", "^resume must be a run folder or a name under .*, but 'nowhere' is neither"),
        ("latest", "^there is no run yet in .*; start one with `fedge run`"),
    ],
)
def test_a_run_that_is_not_there(tmp_path, name, words):
    with pytest.raises(ConfigError, match=words):
        carry_out(tmp_path, resume=name)


def test_a_folder_that_is_no_run(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"^resume needs an intact checkpoint, but .*empty has none"):
        carry_out(tmp_path, resume=str(tmp_path / "empty"))


def test_a_run_that_is_going_on_is_refused(copy):
    lock = RunLock(copy)
    assert "is still in progress; wait for it, or stop it" in refusal(copy)
    lock.close()


def test_a_name_in_the_runs_folder_is_enough_and_latest_follows(copy):
    assert carry_out(copy.parent, resume="copy")[0].status == "completed"
    assert (copy.parent / "latest").resolve() == copy


# --- tables and results that are not what was written -------------------------------------------------

NEEDED = ["metrics/global_rounds.csv", "metrics/leaf_rounds.csv", "metrics/clients.csv", "clusters.jsonl"]
OPTIONAL = ["timing.csv", "timing/workers.csv", "memory.csv"]


def change_digit(path, row):
    """Change a digit of a row: its size stays."""
    lines = path.read_text().splitlines(keepends=True)
    place = next(i for i, sign in enumerate(lines[row]) if sign.isdigit() and i > 2)
    lines[row] = lines[row][:place] + str((int(lines[row][place]) + 1) % 10) + lines[row][place + 1 :]
    path.write_text("".join(lines))


@pytest.mark.parametrize("name", NEEDED)
def test_a_changed_digit_of_the_last_round_goes_back_a_round(copy, four, name):
    change_digit(copy / name, -1)
    outcome, shown = carry_out(copy.parent, resume=str(copy))
    (line,) = [line for line in shown.splitlines() if "does not fit" in line]
    assert line.startswith("note: ")
    assert line.endswith(f"round-000004 does not fit: {name} is not what was written; resuming from round 3")
    assert comparable(outcome.folder) == comparable(four)


@pytest.mark.parametrize("name", NEEDED)
def test_a_changed_digit_that_no_round_mends_is_refused(copy, name):
    change_digit(copy / name, 1 if name.endswith("csv") else 0)
    assert re.match(
        f"resume needs an intact checkpoint, but .*copy has none: .*round-000004 does not fit: {name} is not "
        f"what was written; .*round-000003 does not fit: {name} .*; start a new run$",
        refusal(copy),
    )


@pytest.mark.parametrize("name", OPTIONAL)
@pytest.mark.parametrize(
    "damage", [Path.unlink, truncate, lambda path: change_digit(path, 1)], ids=["gone", "cut", "changed"]
)
def test_a_lost_optional_table_is_begun_anew(copy, four, name, damage):
    damage(copy / name)
    rest = (copy / name).read_bytes() if (copy / name).exists() else None
    outcome, shown = carry_out(copy.parent, resume=str(copy), num_server_rounds=5)
    assert f"note: {name} is not what was written; it is restarted" in shown
    assert outcome.status == "completed"
    rows = list(csv.DictReader((copy / name).read_text().splitlines()))
    assert {row["global_round"] for row in rows} == {"5"}
    aside = copy / f"{name}.damaged"
    assert (aside.read_bytes() if aside.exists() else None) == rest


@pytest.mark.parametrize(
    "name", ["checkpoints/final.safetensors", "metrics/confusion.json", "partition.csv", *NEEDED]
)
@pytest.mark.parametrize(
    "damage", [Path.unlink, flip, lambda path: path.write_bytes(b"")], ids=["gone", "flipped", "empty"]
)
def test_a_result_of_a_complete_run_is_made_again(four, tmp_path, capsys, name, damage):
    """Unless it is damaged in rows of rounds before the oldest checkpoint."""
    folder = shutil.copytree(four, tmp_path / "runs" / "complete")
    before = (four / name).read_bytes()
    if name in NEEDED:
        change_digit(folder / name, -1)
    else:
        damage(folder / name)
    assert main(["status", str(folder)]) == 4
    assert f"damaged: {name} is " in capsys.readouterr().out
    outcome, shown = carry_out(folder.parent, resume=str(folder))
    assert outcome.status == "completed"
    assert "is complete" not in shown
    assert f"{name} is " in shown
    assert comparable(folder) == comparable(four)
    if name not in NEEDED:
        assert (folder / name).read_bytes() == before
    assert main(["status", str(folder)]) == 0
    assert "is complete: 4 of 4 global rounds" in carry_out(folder.parent, resume=str(folder))[1]


def test_a_table_of_another_version_is_refitted_and_still_fits(copy, four, monkeypatch):
    """The table is rewritten when the run goes on, so its newest checkpoint is, too."""
    table = copy / "metrics" / "clients.csv"
    lines = [line + ",x" for line in table.read_text().splitlines()]
    table.write_text("\n".join(lines) + "\n")
    found = open_resumption_with_size(copy, monkeypatch)
    assert found == 4
    (copy / "checkpoints" / "final.safetensors").unlink()
    (copy / "manifest.json").write_text(json.dumps({**manifest(copy), "status": "running"}))
    outcome, shown = carry_out(copy.parent, resume=str(copy))
    assert "after global round 4" in shown
    assert comparable(outcome.folder) == comparable(four)


def open_resumption_with_size(copy, monkeypatch):
    """Go on with a checkpoint that knows the table as it is, as an older version would have written it."""
    from fedge.states import checkpoint

    path = copy / "checkpoints" / "round-000004" / "manifest.json"
    content = json.loads(path.read_text())["content"]
    content["facts"]["offsets"]["metrics/clients.csv"] = (copy / "metrics" / "clients.csv").stat().st_size
    del content["facts"]["sha256"]
    path.write_bytes(checkpoint._manifest_bytes(content))
    outcome, _ = carry_out(copy.parent, resume=str(copy))
    assert outcome.status == "completed"
    assert open_resumption(copy).notes == []
    return open_resumption(copy).checkpoint.global_round


@pytest.mark.parametrize("engine", [None, 3])
def test_a_manifest_without_its_engine_goes_on(four, copy, capsys, engine):
    """Somebody has edited it: what the checkpoint knows is taken."""
    entries = {**manifest(copy), "engine": engine}
    if engine is None:
        del entries["engine"]
    (copy / "manifest.json").write_text(json.dumps(entries))
    assert main(["resume", str(copy)]) == 0
    assert "Traceback" not in "".join(capsys.readouterr())
    assert comparable(copy) == comparable(four)
    assert manifest(copy)["engine"] == manifest(four)["engine"]
