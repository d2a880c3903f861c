"""Odd files of public sensor data are windows that pass all checks or one line, whatever is in their text."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from odd_archives import one_of
from odd_tables import NO_FILES, TEXTS, damaged, put_no_file
from published import (
    pamap2_row,
    wisdm_record,
    write_hapt,
    write_motionsense,
    write_pamap2,
    write_uci_har,
    write_wisdm,
)
from refusals import check_refusal

from fedge.config.registers.option import ConfigError
from fedge.datasets.catalog import prepare
from fedge.datasets.command import _as_config_error

SAMPLE, MANY = 100, 3000
LONGEST_S = 30
CELLS = (*TEXTS, "1e300", "-1e300", "9" * 18, "1e18", "9223372036854775807", "3.4e38", "0.5", "7")


def write_honest(name, folder):
    """Write a tiny data set as published."""
    if name == "motionsense":
        write_motionsense(folder, trials=("dws_1",), rows=200)
    elif name == "uci-har":
        write_uci_har(folder, {"train": [(1, 1)] * 3 + [(2, 5)] * 3})
    elif name == "hapt":
        write_hapt(folder, [(1, 1, 1, 1, 300), (1, 1, 5, 301, 600)])
    elif name == "wisdm":
        write_wisdm(folder, [wisdm_record(33, "Jogging", number) for number in range(200)])
    else:
        write_pamap2(folder, "101", [pamap2_row(number / 100, 4) for number in range(400)])


NAMES = ("motionsense", "uci-har", "hapt", "wisdm", "pamap2")


def make_odd(rng, folder):
    """Change one of the files: cells of some lines, or bytes anywhere."""
    path = one_of(rng, sorted(path for path in folder.rglob("*") if path.is_file()))
    made = path.read_bytes()
    if rng.random() < 0.6 and made:
        lines = made.decode().split("\n")
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(lines)))
            between = "," if "," in lines[at] else " "
            cells = lines[at].split(between)
            cells[rng.integers(len(cells))] = one_of(rng, CELLS)
            lines[at] = between.join(
                cells[: int(rng.integers(1, len(cells) + 1))] if rng.random() < 0.2 else cells
            )
        made = "\n".join(lines).encode()
    path.write_bytes(damaged(rng, made, 0.4))


def is_refused(name, folder):
    """Whether a data set is refused, in one line with its file and what to do; else its windows are right."""
    try:
        with _as_config_error():  # the command's: a file that cannot be opened is an OSError before
            windows = prepare("uci-har" if name == "hapt" else name, folder)
    except ConfigError as error:
        check_refusal(error, folder)
        return True
    assert windows.x.dtype == np.float32
    assert windows.x.ndim == 3
    assert windows.x.shape[1] == len(windows.channels)
    assert np.isfinite(windows.x).all()
    assert len(windows.x) == len(windows.y) == len(windows.user) > 0
    assert ((windows.y >= 0) & (windows.y < len(windows.classes))).all()
    return False


def try_all(place, seeds):
    """Print how many odd data sets are refused, and how many read; a hang ends the process."""
    import faulthandler
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        most = int(file.read().split()[0]) * resource.getpagesize() + (3 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    honest, found = Path(place) / "honest", [0, 0]
    for name in NAMES:
        write_honest(name, honest / name)
    for seed in seeds:
        rng, name, folder = np.random.default_rng([245, seed]), NAMES[seed % len(NAMES)], Path(place) / "odd"
        shutil.copytree(honest / name, folder)
        make_odd(rng, folder)
        faulthandler.dump_traceback_later(LONGEST_S, exit=True)
        try:
            found[is_refused(name, folder)] += 1
        except BaseException:
            print(f"seed {seed}, {name}", file=sys.stderr)
            raise
        shutil.rmtree(folder)
    print(json.dumps(found[::-1]))


def in_a_process(place, seeds, before=""):
    """A process that has tried odd data sets, after the code `before`; a warning is an error there."""
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        f"from tests.fedge.datasets.test_odd_sensors import *\n{before}\n"
        f"try_all(sys.argv[1], range({seeds.start}, {seeds.stop}))\n"
    )
    words = [sys.executable, "-W", "error", "-c", code, os.fspath(place)]
    return subprocess.run(words, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)


def refused_and_read(done):
    """(refused, read) of such a process, which said nothing else."""
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    refused, read = json.loads(done.stdout)
    assert 0.2 < refused / (refused + read) < 1
    return refused, read


def test_odd_sensor_data_are_read_right_or_are_one_line(tmp_path):
    refused, read = refused_and_read(in_a_process(tmp_path, range(SAMPLE)))
    print(f"odd sensor data: {refused} refused, {read} read")


@pytest.mark.extended
@pytest.mark.timeout(900)
def test_thousands_of_odd_sensor_data(tmp_path):
    refused, read = refused_and_read(in_a_process(tmp_path, range(SAMPLE, SAMPLE + MANY)))
    print(f"odd sensor data: {refused} refused, {read} read")


@pytest.mark.extended
def test_a_planted_hole_is_found(tmp_path):
    """Broken rows are no longer looked for."""
    hole = "from fedge.datasets import tables as m; m.refuse_broken_rows = lambda *a, **k: None"
    done = in_a_process(tmp_path, range(1000), hole)
    assert done.returncode or done.stderr


@pytest.mark.parametrize("how", NO_FILES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.timeout(20)
def test_what_is_no_plain_file_is_one_line_at_once(tmp_path, name, how):
    write_honest(name, tmp_path)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    for path in files:
        path.unlink()
        put_no_file(path, how)
    assert is_refused(name, tmp_path)
