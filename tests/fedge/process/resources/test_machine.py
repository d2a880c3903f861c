"""Limits of cgroups of either version, from files as the kernel has them."""

import os
from dataclasses import replace

import pytest

from fedge.process.resources import machine
from fedge.process.resources.machine import limits, this_machine


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text + "\n")


def test_this_machine_is_what_the_system_says():
    found = this_machine()
    assert 0 < found.usable_cores <= found.cores == os.cpu_count()
    assert 0 < found.available_mib <= found.memory_mib
    assert found.open_files is None or found.open_files > 0


def test_a_container_of_version_2(tmp_path):
    """Half a core and 1 GiB, of which a quarter is used; the cgroup above allows more."""
    own = tmp_path / "own"
    own.write_text("0::/docker/abc\n")
    top = tmp_path / "cgroup"
    write(top / "docker", cpu_max="400000 100000", memory_max=str(8 << 30), memory_current="0")
    inner = top / "docker" / "abc"
    write(inner, cpu_max="50000 100000", memory_max=str(1 << 30), memory_current=str(256 << 20))
    assert limits(top, own) == (0.5, 1024.0, 768.0)
    found = this_machine(top, own)
    assert found.usable_cores == 0.5
    assert found.memory_mib == 1024.0
    assert found.available_mib <= 768.0
    assert found.cgroup == "0.5 cores, 1,024 MiB"


def test_a_container_of_version_1(tmp_path):
    top = tmp_path / "cgroup"
    for folder, name, value in (
        ("cpu", "cpu.cfs_quota_us", "150000"), ("cpu", "cpu.cfs_period_us", "100000"),
        ("memory", "memory.limit_in_bytes", str(2 << 30)), ("memory", "memory.usage_in_bytes", str(1 << 30)),
    ):  # fmt: skip
        (top / folder).mkdir(parents=True, exist_ok=True)
        (top / folder / name).write_text(value)
    assert limits(top, tmp_path / "nothing") == (1.5, 2048.0, 1024.0)


STAT = "anon 100\nfile 900\nactive_file {active}\ninactive_file {inactive}\nshmem 7"
STAT_V1 = "cache 9\nactive_file 1\ninactive_file 1\ntotal_cache 9\ntotal_active_file {active}\n"
STAT_V1 += "total_inactive_file {inactive}"


@pytest.mark.parametrize(
    ("stat", "names"),
    [
        (STAT, ("memory.max", "memory.current")),
        (STAT_V1, ("memory.limit_in_bytes", "memory.usage_in_bytes")),
    ],
)
def test_pages_of_files_are_free_memory(tmp_path, stat, names):
    """Of 1,024 MiB 1,000 count as used, of which 600 and 100 are pages of files: 724 are left.

    A container that has read its data set is not short of memory.
    """
    write(tmp_path, memory_stat=stat.format(active=100 << 20, inactive=600 << 20))
    for name, mib in zip(names, (1024, 1000), strict=True):
        (tmp_path / name).write_text(str(mib << 20))
    assert limits(tmp_path, tmp_path / "nothing") == (None, 1024.0, 724.0)
    (tmp_path / "memory.stat").write_text("anon\nno form at all")
    assert limits(tmp_path, tmp_path / "nothing") == (None, 1024.0, 24.0)


def test_an_ancestor_with_more_memory_but_less_left(tmp_path):
    """A pod of 4 GiB of which other containers use 3.5: of this container's 2 GiB, half a GiB is left."""
    own = tmp_path / "own"
    own.write_text("0::/pod/mine\n")
    top = tmp_path / "cgroup"
    write(top / "pod", memory_max=str(4 << 30), memory_current=str(7 << 29))
    write(top / "pod" / "mine", memory_max=str(2 << 30), memory_current=str(1 << 29))
    assert limits(top, own) == (None, 2048.0, 512.0)
    assert this_machine(top, own).available_mib <= 512.0


@pytest.mark.parametrize("words", [("max 100000", "max"), ("words", "no number"), ("100000 0", "")])
def test_no_limit_and_odd_files_limit_nothing(words, tmp_path):
    write(tmp_path / "cgroup", cpu_max=words[0], memory_max=words[1])
    (tmp_path / "cgroup" / "cpu").mkdir()
    (tmp_path / "cgroup" / "cpu" / "cpu.cfs_quota_us").write_text("-1")
    assert limits(tmp_path / "cgroup", tmp_path / "nothing") == (None, None, None)


def test_what_fits_into_free_memory(monkeypatch):
    """100 MiB are free: 40 MiB fit two and a half times, for one of two runs 20 MiB.

    So they do under a limit of 50 MiB of addresses.
    """
    found = replace(machine.this_machine(), available_mib=100.0)
    monkeypatch.setattr(machine, "this_machine", lambda: found)
    monkeypatch.setattr(machine._ConcurrentRuns, "runs", 1)
    assert [machine.fits_in_memory(mib * 2**20) for mib in (40, 40.1)] == [True, False]
    monkeypatch.setattr(machine, "limit_mib", lambda: 50.0)
    assert [machine.fits_in_memory(mib * 2**20) for mib in (20, 20.1)] == [True, False]
    monkeypatch.setattr(machine, "limit_mib", lambda: float("inf"))
    machine.share_memory(2)
    assert [machine.fits_in_memory(mib * 2**20) for mib in (20, 20.1)] == [True, False]
