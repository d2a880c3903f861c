"""Damaged folders of `fedge deal`, and their forged descriptions, are one line at a node's first call.

Case N follows from seed N.
"""

import json
import shutil
from collections import Counter

import numpy as np
import pytest
from damage import damage
from odd_json import changed, text_of
from refusals import check_refusal
from small_runs import small_config

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.data import own_windows
from fedge.data.own_windows import WindowsReport, own_data
from fedge.launch.deal import deal_into

SAMPLE, MANY = 60, 3000


@pytest.fixture(scope="module")
def dealt(tmp_path_factory):
    """Folders of two owners, and the configuration of their runs."""
    folder = tmp_path_factory.mktemp("shares")
    options = small_config(folder / "data")
    deal_into(folder / "dealt", {**options, "clients": 9})
    return folder / "dealt", from_run_config({**options, "data.path": "nowhere.npz"})


def read(dealt, folder):
    node = {"partition-id": 0, "num-partitions": 9, "data-folder": str(folder)}
    return own_data(node, dealt[1], 42, is_first=True)


def same(one, other):
    """Whether windows and what is told of them are those of another folder, names apart."""
    arrays = all(np.array_equal(getattr(one.laid, name), getattr(other.laid, name)) for name in "xy")
    return arrays and one.laid.bounds == other.laid.bounds and one.laid.eras == other.laid.eras


def became(dealt, place, seed):
    """Fate of a folder that is damaged, or whose index is forged, by a seed."""
    rng, (folders, _) = np.random.default_rng([seed, 31]), dealt
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folders / "client-0", place)
    if seed % 2:
        (outside := place.with_name("outside")).write_text("nobody's\n")
        case = damage(place, folders / "client-1", outside, rng)
    else:
        index, case = place / "index.json", "forged index"
        index.write_bytes(text_of(changed(json.loads(index.read_text()), rng), rng))
        if seed % 4 == 0:  # within the description, too
            content = json.loads((folders / "client-0" / "index.json").read_text())
            content["told"] = json.dumps(changed(json.loads(content["told"]), rng))
            index.write_text(json.dumps(content))
    try:
        found = read(dealt, place)
    except ConfigError as error:
        check_refusal(error, place)
        return "refused"
    assert same(found, read(dealt, folders / "client-0")), f"seed {seed}: {case}: other windows"
    assert WindowsReport.of_text(found.report.to_text()) == found.report
    at = found.bounds(1)
    sizes = [at.val - at.start, at.test - at.val, at.stop - at.test]
    assert sizes == [found.report.windows(split) for split in ("train", "val", "test")]
    assert found.report.input_shape == found.laid.x.shape[1:]
    return "read"


def counts(dealt, place, seeds):
    """How many folders were refused and read."""
    seen = Counter()
    for seed in seeds:
        own_windows._map_share.cache_clear()
        try:
            seen[became(dealt, place, seed)] += 1
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    return seen


def test_damaged_folders_of_windows_are_one_line(dealt, tmp_path):
    seen = counts(dealt, tmp_path / "share", range(SAMPLE))
    assert min(seen.values()) > 0
    assert len(seen) == 2


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_thousands_of_damaged_folders_of_windows(dealt, tmp_path):
    print(counts(dealt, tmp_path / "share", range(SAMPLE, SAMPLE + MANY)))


@pytest.mark.parametrize("hole", ["_refuse_other_form", "_fingerprint"])
@pytest.mark.extended
def test_a_planted_hole_is_found(dealt, tmp_path, monkeypatch, hole):
    """Forms, or contents, are no longer looked at."""
    told = json.loads(json.loads((dealt[0] / "client-0" / "index.json").read_text())["told"])["fingerprint"]
    holes = {"_refuse_other_form": lambda laid, told: None, "_fingerprint": lambda laid: told}
    monkeypatch.setattr(own_windows, hole, holes[hole])
    with pytest.raises(Exception) as found:  # noqa: PT011
        counts(dealt, tmp_path / "share", range(MANY))
    assert not isinstance(found.value, ConfigError)
