"""Odd raw files of HHAR are windows that pass all checks or one line, whatever is in their cells."""

import math
import shutil

import numpy as np
import pytest
from odd_archives import one_of
from odd_tables import TEXTS, damaged
from refusals import check_refusal

from hhar.errors import HharError
from hhar.facts import RAW_COLUMNS, RAW_FILES
from hhar.raw.prepare import prepare
from hhar.windows.cut import WindowSpec

SAMPLE, MANY = 40, 2000
ROWS = 800  # of a user: eight seconds at 100 Hz, half of them standing
CELLS = (
    *TEXTS, "1e300", "-1e300", "9" * 18, "1e18", "9223372036854775807", "9.2e18", "-9.1e18", "1e19", "3.4e38",
    "0.5", "7", "null", "walk", "sit", "1424696633908",
)  # fmt: skip


def write_honest(folder):
    """Write the phones' two files, two users long enough for windows."""
    folder.mkdir()
    for sensor in ("acc", "gyro"):
        lines = [",".join(RAW_COLUMNS)]
        for user in "ab":
            for row in range(ROWS):
                values = f"{math.sin(row / 7):.4f},{math.cos(row / 5):.4f},9.8"
                times = f"{1_424_696_633_908 + 10 * row},{1_424_696_631_913_248_572 + 10_000_000 * row}"
                label = "stand" if row < ROWS / 2 else "walk"
                lines.append(f"{row},{times},{values},{user},nexus4,nexus4_1,{label}")
        (folder / RAW_FILES["phones", sensor]).write_text("\n".join(lines) + "\n")


def make_odd(rng, folder):
    """Change one of the files: cells of some lines, and at times bytes anywhere."""
    path = one_of(rng, sorted(folder.iterdir()))
    lines = path.read_text().split("\n")
    for _ in range(rng.integers(1, 6)):
        at = int(rng.integers(len(lines)))
        cells = lines[at].split(",")
        cells[rng.integers(len(cells))] = one_of(rng, CELLS)
        is_cut = rng.random() < 0.1
        lines[at] = ",".join(cells[: int(rng.integers(1, len(cells) + 1))] if is_cut else cells)
    content = "\n".join(lines).encode()
    path.write_bytes(damaged(rng, content, 0.4) if rng.random() < 0.3 else content)


def is_refused(folder):
    """Whether a raw folder is refused, in one line with what to do; else its windows are right."""
    try:
        windows = prepare(folder, WindowSpec(), "phones")
    except HharError as error:
        check_refusal(error, folder)
        return True
    assert windows.x.shape[1:] == (6, 128)
    assert np.isfinite(windows.x).all()
    assert len(windows.x) == len(windows.y) == len(windows.user) > 0
    return False


def counts(place, seeds):
    """(refused, read) of so many odd raw folders."""
    found = [0, 0]
    write_honest(place / "honest")
    assert not is_refused(place / "honest")
    for seed in seeds:
        shutil.copytree(place / "honest", place / "odd")
        make_odd(np.random.default_rng([246, seed]), place / "odd")
        found[is_refused(place / "odd")] += 1
        shutil.rmtree(place / "odd")
    return found[1], found[0]


def test_odd_raw_files_are_read_right_or_are_one_line(tmp_path):
    refused, read = counts(tmp_path, range(SAMPLE))
    assert min(refused, read) > 0


@pytest.mark.extended
@pytest.mark.timeout(1200)
def test_thousands_of_odd_raw_files(tmp_path):
    refused, read = counts(tmp_path, range(SAMPLE, SAMPLE + MANY))
    assert min(refused, read) > MANY / 20


@pytest.mark.extended
def test_a_planted_hole_is_found(tmp_path, monkeypatch):
    """Cells out of range are no longer looked for."""
    monkeypatch.setattr("hhar.raw.parse._in_range", lambda frame: True)
    with pytest.raises((AssertionError, OverflowError, ValueError)) as found:
        counts(tmp_path, range(SAMPLE))
    assert not isinstance(found.value, HharError)
