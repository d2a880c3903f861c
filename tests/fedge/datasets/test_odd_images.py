"""Odd files of pictures are windows that pass all checks or one line; nothing hangs or fills the memory.

They are read in a process that may take little memory and little time for each.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import odd_images
import pytest
from odd_tables import NO_FILES, put_no_file

from fedge.datasets.catalog import prepare
from fedge.datasets.pickled import read_pickled
from hhar.errors import HharError

SAMPLE, MANY = 200, 10_000
LONGEST_S = 20
ROOM = 3 << 29  # bytes that reading may take beside what the process has
MAKERS = {"mnist": odd_images.odd_mnist, "cifar10": odd_images.odd_cifar10}
LABELS = {"mnist": 10, "cifar10": 10}


def is_refused(name, folder):
    """Whether pictures are refused, in one line with their place and what to do; else they are right."""
    try:
        windows = prepare(name, folder, users=1)
    except HharError as error:
        said = str(error)
        assert str(folder) in said or said.startswith(("images", "users", "labels")), said
        assert ";" in said, said
        assert len(said) < 700 + len(str(folder)), said
        assert "\n" not in said, said
        return True
    assert windows.x.dtype == np.uint8
    assert windows.x.ndim == 4
    assert windows.x.shape[1] in (1, 3)
    assert windows.y.dtype == np.int64
    assert windows.y.shape == (len(windows.x),)
    assert ((windows.y >= 0) & (windows.y < LABELS[name])).all()
    assert len(windows.classes) == LABELS[name]
    return False


def try_all(place, seeds):
    """Print how many odd files were refused, and how many read; ends the process if one takes too long."""
    import faulthandler
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        most = int(file.read().split()[0]) * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    found = [0, 0]
    for seed in seeds:
        rng = np.random.default_rng([244, seed])
        name = ("mnist", "cifar10")[seed % 2]
        folder = Path(place) / str(seed)
        folder.mkdir()
        MAKERS[name](rng, folder)
        faulthandler.dump_traceback_later(LONGEST_S, exit=True)
        try:
            found[is_refused(name, folder)] += 1
        except BaseException:
            print(f"seed {seed}, {name}", file=sys.stderr)
            raise
        shutil.rmtree(folder)
    print(json.dumps(found[::-1]))


def in_a_process(place, call, before=""):
    """A process that has tried odd files, after the code `before`."""
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        f"from tests.fedge.datasets.test_odd_images import *\n{before}\n{call}\n"
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


def test_odd_pictures_are_read_right_or_are_one_line(tmp_path):
    refused, read = refused_and_read(in_a_process(tmp_path, f"try_all(sys.argv[1], range({SAMPLE}))"))
    print(f"odd files of pictures: {refused} refused, {read} read")


@pytest.mark.extended
@pytest.mark.timeout(900)
def test_thousands_of_odd_pictures(tmp_path):
    call = f"try_all(sys.argv[1], range({SAMPLE}, {SAMPLE + MANY}))"
    refused, read = refused_and_read(in_a_process(tmp_path, call))
    print(f"odd files of pictures: {refused} refused, {read} read")


@pytest.mark.parametrize("bomb", odd_images.BOMBS)
@pytest.mark.timeout(30)
def test_no_order_of_a_pickle_fills_the_memory_or_takes_years(tmp_path, bomb):
    (tmp_path / "p").write_bytes(odd_images.BOMBS[bomb])
    with pytest.raises(HharError, match=r"must be a pickle|must have data"):
        read_pickled(tmp_path / "p", ["data"])


HOLES = {
    "any order of a pickle": "from fedge.datasets import pickled as m; import pickle\n"
    "m._Reader = lambda stream, *_: pickle.Unpickler(stream, encoding='bytes')",
    "labels beyond the classes": "from dataclasses import replace; from fedge.datasets import mnist as m\n"
    "f = m.from_images; m.from_images = lambda *a, **k: (lambda w: replace(w, y=w.y + 9))(f(*a, **k))",
    "an IDX file of any size": "from fedge.datasets import mnist as m; m._MOST_BYTES = 1 << 40\n"
    "m.SMALL_BYTES = 1 << 40",
}


@pytest.mark.extended
@pytest.mark.parametrize("hole", HOLES)
def test_a_planted_hole_is_found(tmp_path, hole):
    done = in_a_process(tmp_path, "try_all(sys.argv[1], range(1000))", HOLES[hole])
    assert done.returncode or done.stderr


@pytest.mark.parametrize("how", NO_FILES)
@pytest.mark.timeout(20)
def test_what_is_no_plain_file_is_one_line_at_once(tmp_path, how):
    (tmp_path / "pictures").mkdir()
    put_no_file(tmp_path / "pictures" / "data_batch_1", how)
    put_no_file(tmp_path / "pictures" / "train-images-idx3-ubyte", how)
    for name in MAKERS:
        assert is_refused(name, tmp_path / "pictures")
