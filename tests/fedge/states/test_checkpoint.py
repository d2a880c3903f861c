import json
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedge.states.checkpoint import (
    MANIFEST,
    CheckpointError,
    _manifest_bytes,
    checkpoints,
    newest_valid_checkpoint,
    prune,
    read_checkpoint,
    write_checkpoint,
)

FACTS = {"labels": [0, 1, 0], "nested": {"a": None, "b": [1.5, "x"]}, "name": "Łódź", "nan": float("nan")}


def groups(scale=1.0):
    """Two leaves whose entries are neither in alphabetical order nor of one kind, and one client."""
    model = {
        "z.weight": np.arange(6, dtype=np.float32).reshape(2, 3) * scale,
        "a.bias": np.array([0.1, -0.0, np.nan], dtype=np.float32),
        "counter": np.array(7),
        "empty": np.zeros((0, 2)),
    }
    control = {"z.weight": np.full((2, 3), 1e-300), "a.bias": np.zeros(3)}
    return {
        "leaves": {"0/model": model, "0/control": control, "1/model": {n: a + 1 for n, a in model.items()}},
        "clients": {"3": control},
    }


def same(one, other):
    """Tell whether two groups have equal names in equal order, dtypes, shapes and bytes."""
    flat = [
        [
            (group, state, name, array.dtype, array.shape, array.tobytes())
            for group, states in gs.items()
            for state, entries in states.items()
            for name, array in entries.items()
        ]
        for gs in (one, other)
    ]
    return flat[0] == flat[1]


@pytest.fixture
def folder(tmp_path):
    return write_checkpoint(tmp_path / "checkpoints", 7, groups(), FACTS)


def test_what_is_written_is_read(folder):
    """States with the order of their entries, -0.0, NaN, a number without dimensions; facts as JSON."""
    found = read_checkpoint(folder)
    assert (folder.name, found.folder, found.global_round) == ("round-000007", folder, 7)
    assert same(found.groups, groups())
    assert json.dumps(found.facts) == json.dumps(FACTS)
    assert sorted(p.name for p in folder.iterdir()) == ["clients.safetensors", "leaves.safetensors", MANIFEST]
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


def test_a_group_without_states_has_no_file(tmp_path):
    folder = write_checkpoint(tmp_path, 0, {"leaves": groups()["leaves"], "clients": {}}, {})
    assert sorted(p.name for p in folder.iterdir()) == ["leaves.safetensors", MANIFEST]
    assert list(read_checkpoint(folder).groups) == ["leaves"]


@pytest.mark.parametrize("names", [("0/m", "0/m/x"), ("0/m/x", "0/m")])
def test_names_with_slashes_do_not_mix(tmp_path, names):
    """``0/m`` with an entry ``x/a`` beside ``0/m/x`` with an entry ``b``."""
    states = {names[0]: {"x/a": np.zeros(1), "c": np.ones(2)}, names[1]: {"b": np.zeros(3)}}
    found = read_checkpoint(write_checkpoint(tmp_path, 1, {"g": states}, {}))
    assert same(found.groups, {"g": states})


def test_states_stay_readable_when_the_folder_goes(folder):
    found = read_checkpoint(folder)
    shutil.rmtree(folder)
    assert same(found.groups, groups())


def test_a_round_written_again_replaces_the_first(folder):
    write_checkpoint(folder.parent, 7, groups(scale=2.0), {"second": True})
    found = read_checkpoint(folder)
    assert found.facts == {"second": True}
    assert same(found.groups, groups(scale=2.0))
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


# --- damage -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A checkpoint, and the bytes of its files."""
    folder = write_checkpoint(tmp_path_factory.mktemp("whole"), 7, groups(), FACTS)
    return folder, {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_is_found(whole, data):
    folder, files = whole
    name = data.draw(st.sampled_from(sorted(files)))
    at = data.draw(st.integers(0, len(files[name]) - 1))
    other = data.draw(st.integers(1, 255))
    changed = bytearray(files[name])
    changed[at] ^= other
    refused_with(folder, name, bytes(changed), files[name])


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_truncation_is_found(whole, data):
    folder, files = whole
    name = data.draw(st.sampled_from(sorted(files)))
    length = data.draw(st.integers(0, len(files[name]) - 1))
    refused_with(folder, name, files[name][:length], files[name])


@pytest.mark.parametrize(
    "garbage",
    [b"", b"{}", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"content": 1}', b'{"content": {}}'],
)
def test_a_manifest_of_garbage_is_found(whole, garbage):
    folder, files = whole
    refused_with(folder, MANIFEST, garbage, files[MANIFEST])


def test_bytes_that_are_added_are_found(whole):
    folder, files = whole
    for name, content in files.items():
        refused_with(folder, name, content + b"\n", content)


def refused_with(folder, name, content, original):
    """Reading with `content` in the file `name` raises one line that says so; the file is put back."""
    try:
        (folder / name).write_bytes(content)
        with pytest.raises(CheckpointError, match=rf"^checkpoint .*{folder.name} is damaged: {name} ") as e:
            read_checkpoint(folder)
        assert "\n" not in str(e.value)
    finally:
        (folder / name).write_bytes(original)
    assert read_checkpoint(folder).global_round == 7


def odd_tables(table):
    """Tables of states, name and entries, that a file does not hold."""
    yield from (table[:n] + table[n + 1 :] for n in range(len(table)))
    yield from (table[: n + 1] + table[n:] for n in range(len(table)))  # one of them twice
    yield table[::-1]
    yield [*table, ["9", 0], ["9", 0]]
    for n, (name, count) in enumerate(table):
        for other in (
            [f"{name}x", count],
            [name[:-1], count],
            [name, count - 1],
            [name, count + 1],
            [name, -1],
        ):
            yield [*table[:n], other, *table[n + 1 :]]
    yield [[table[0][0], table[0][1] + 1], [table[1][0], table[1][1] - 1], *table[2:]]


@pytest.mark.parametrize("case", range(24))
def test_states_that_the_file_does_not_hold_are_refused_with_checksums_that_fit(folder, case):
    """Each state goes to who had it: one too many would shift those behind it."""
    path = folder / MANIFEST
    content = json.loads(path.read_bytes())["content"]
    content["files"]["leaves"]["states"] = list(odd_tables(content["files"]["leaves"]["states"]))[case]
    path.write_bytes(_manifest_bytes(content))
    with pytest.raises(CheckpointError, match="it says what cannot be: ValueError") as refused:
        read_checkpoint(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", [MANIFEST, "leaves.safetensors", "clients.safetensors"])
def test_a_missing_file_is_found(folder, name):
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=rf"is damaged: {name}: No such file"):
        read_checkpoint(folder)


def test_a_checkpoint_under_another_name_is_found(folder):
    folder.rename(folder.with_name("round-000008"))
    with pytest.raises(CheckpointError, match="is damaged: its manifest is of round 7"):
        read_checkpoint(folder.with_name("round-000008"))


def test_another_format_is_refused_by_its_number(folder, monkeypatch):
    monkeypatch.setattr("fedge.states.checkpoint._FORMAT", 2)
    with pytest.raises(CheckpointError, match="has format 1, which this version of Fedge does not read"):
        read_checkpoint(folder)


# --- which one, and which stay ------------------------------------------------------------------------


def test_the_newest_whole_one_is_taken_and_the_others_are_named(tmp_path):
    folders = [write_checkpoint(tmp_path, n, groups(), {"n": n}) for n in (8, 9, 10, 1_000_000)]
    (folders[3] / "leaves.safetensors").unlink()
    (folders[2] / MANIFEST).write_text("{}")
    found, damaged = newest_valid_checkpoint(tmp_path)
    assert found.facts == {"n": 9}
    assert [name for error in damaged for name in ("1000000", "000010") if name in str(error)] == [
        "1000000",
        "000010",
    ]
    earlier, damaged = newest_valid_checkpoint(tmp_path, before=9)
    assert (earlier.global_round, damaged) == (8, [])


def test_none_at_all(tmp_path):
    assert newest_valid_checkpoint(tmp_path) == (None, [])
    assert newest_valid_checkpoint(tmp_path / "nowhere") == (None, [])


def test_other_things_in_the_folder_are_no_checkpoints(folder):
    (folder.parent / "final.safetensors").write_bytes(b"x")
    (folder.parent / "round-12").mkdir()
    (folder.parent / "round-000009").write_text("a file")
    shutil.copytree(folder, folder.parent / ".round-000011.part")
    assert checkpoints(folder.parent) == [folder]


def test_the_newest_stay_and_what_was_unfinished_goes(tmp_path):
    for n in (0, 1, 2, 10, 11):
        write_checkpoint(tmp_path, n, groups(), {})
    (tmp_path / ".round-000012.part").mkdir()
    (tmp_path / ".round-000003.gone").mkdir()
    (tmp_path / "final.safetensors").write_bytes(b"x")
    prune(tmp_path, 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["final.safetensors", "round-000010", "round-000011"]


def test_rounds_past_the_one_gone_on_from_go_first(tmp_path):
    for n in range(6):
        write_checkpoint(tmp_path, n, groups(), {})
    prune(tmp_path, 2, after=3)
    assert [p.name for p in checkpoints(tmp_path)] == ["round-000002", "round-000003"]


# --- what cannot be written ---------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "checkpoints").write_text("a file")
    with pytest.raises(
        CheckpointError,
        match=r"^cannot write checkpoint .*round-000001: (File exists|Not a directory); it is the first",
    ):
        write_checkpoint(tmp_path / "checkpoints", 1, groups(), {})


def test_what_can_go_on_is_said_where_something_can(tmp_path):
    write_checkpoint(tmp_path, 1, groups(), {})
    (tmp_path / ".round-000002.part").write_text("a file")
    with pytest.raises(CheckpointError, match=r"round-000002: .*; earlier ones are intact: .* fedge resume "):
        write_checkpoint(tmp_path, 2, groups(), {})


@pytest.mark.parametrize("bad", [{"fact": object()}, {"fact": {1, 2}}])
def test_what_is_not_json_is_refused(folder, bad):
    with pytest.raises(TypeError):
        write_checkpoint(folder.parent, 8, groups(), bad)
    assert newest_valid_checkpoint(folder.parent)[0].global_round == 7
