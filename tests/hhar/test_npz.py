"""Arrays from elsewhere: what is there, without pickles, and no larger than it is."""

import io
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from archives import sharing
from odd_archives import odd_arrays

from hhar.npz import NpzError, read_npz


def archive(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    stream.seek(0)
    return stream


def test_arrays_come_as_they_were():
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.array(["a", "bc"])
    found = read_npz(archive(x=x, y=y, z=y), ["x"], ["y", "w"])
    assert found.keys() == {"x", "y"}
    np.testing.assert_array_equal(found["x"], x)
    assert found["x"].dtype == np.float32
    assert found["y"].tolist() == ["a", "bc"]


def test_what_is_missing_is_named():
    with pytest.raises(NpzError, match="must hold the arrays x, y, but lacks y"):
        read_npz(archive(x=np.zeros(1)), ["x", "y"], [])


def test_pickles_are_never_loaded():
    with pytest.raises(NpzError, match="pickled objects, which are never loaded"):
        read_npz(archive(x=np.array([{}], dtype=object)), ["x"], [])


def test_a_header_that_lies_about_its_size():
    """A header of 10¹² numbers before eight bytes: refused before memory is taken."""
    member = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(member, header)
    member.write(b"\0" * 8)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        made.writestr("x.npy", member.getvalue())
    with pytest.raises(NpzError, match="x must be as large as its header states"):
        read_npz(stream, ["x"], [])


@pytest.mark.slow
def test_a_small_file_that_unpacks_to_gigabytes_is_refused_before_it_takes_memory(tmp_path):
    """512 MB of zeros deflate to half a MB; 64 MB may, whatever they come from."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as made, made.open("x.npy", "w") as member:
        header = {"descr": "|u1", "fortran_order": False, "shape": (512 << 20,)}
        np.lib.format.write_array_header_1_0(member, header)
        for _ in range(512):
            member.write(bytes(1 << 20))
    assert len(stream.getvalue()) < 1 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(
        NpzError, match=r"must unpack to at most 2\d\d MiB, .* states 512 MiB: an archive bomb"
    ):
        read_npz(stream, ["x"], [])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB
    zeros = io.BytesIO()
    np.savez_compressed(zeros, x=np.zeros(64 << 20, dtype=np.uint8))
    assert read_npz(zeros, ["x"], [])["x"].nbytes == 64 << 20


def test_members_that_share_bytes_are_refused():
    with pytest.raises(
        NpzError, match=r"members must not overlap, but 'y\.npy' does; do not trust this archive"
    ):
        read_npz(sharing(archive(x=np.zeros(9)), "x.npy", "y.npy"), ["x"], [])


# --- odd ones, by seeds -------------------------------------------------------------------------------------

SAMPLE, MANY = 150, 4000


def read_odd(seeds):
    """Read odd files of arrays; returns how many were refused. None takes more memory than its bound."""
    refused = 0
    for seed in seeds:
        stream = io.BytesIO(odd_arrays(seed))
        try:
            found = read_npz(stream, ["x"], ["y"])
        except MemoryError:
            raise AssertionError(seed) from None
        except Exception:  # of many kinds, as it says
            refused += 1
        else:
            assert all(array.dtype != object for array in found.values()), seed
    return refused


def in_little_memory(seeds):
    """Read odd files in a process that may take 2 GB; returns how many were refused."""
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))\n"
        f"sys.path[:0] = {sys.path!r}\n"
        "from tests.hhar.test_npz import read_odd\n"
        f"print(read_odd(range({seeds.start}, {seeds.stop})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_odd_files_of_arrays_are_refused_or_read_and_take_no_more_memory_than_they_hold():
    refused = in_little_memory(range(SAMPLE))
    assert 0.5 < refused / SAMPLE < 1


@pytest.mark.extended
@pytest.mark.timeout(900)
def test_thousands_of_odd_files_of_arrays():
    refused = in_little_memory(range(SAMPLE, SAMPLE + MANY))
    print(f"{MANY} odd files of arrays: {refused} refused, {MANY - refused} read")
