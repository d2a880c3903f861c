"""GPUs as NVIDIA's own tool lists them and CUDA shows them; others by name."""

import sys

import pytest

from fedge.doctor.gpus import Gpu, gpus, unused_gpus, visible_gpus

LISTING = "0, GPU-aaaa, NVIDIA H100, 81559, 81000\n1, GPU-bbbb, NVIDIA T4, 15360, 100\n"
H100, T4 = Gpu("NVIDIA H100", 81559.0, 81000.0), Gpu("NVIDIA T4", 15360.0, 100.0)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [H100, T4]), ("0", [H100]), ("1,0", [T4, H100]), ("GPU-bbbb", [T4]), ("", []), ("-1", []),
        ("1,7,0", [T4]), ("NoDevFiles", []),
    ],
)  # fmt: skip
def test_cuda_shows_what_it_is_told(visible, expected):
    assert visible_gpus(LISTING, visible) == expected


CUT = """GPU 0: NVIDIA H100 (UUID: GPU-aaaa)
  MIG 1g.10gb     Device  0: (UUID: MIG-1111)
  MIG 3g.40gb     Device  1: (UUID: MIG-2222)
GPU 1: NVIDIA T4 (UUID: GPU-bbbb)
"""
SMALL = Gpu("NVIDIA H100 MIG 1g.10gb", 10240.0, 10240.0)
LARGE = Gpu("NVIDIA H100 MIG 3g.40gb", 40960.0, 40960.0)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [T4]), ("0", [SMALL]), ("MIG-2222", [LARGE]), ("MIG-2", [LARGE]),
        ("MIG-GPU-aaaa/2/0", [SMALL]), ("MIG-", []), ("MIG-9", []), ("1,MIG-1111", [T4, SMALL]),
    ],
)  # fmt: skip
def test_a_gpu_in_slices_is_its_slices(visible, expected):
    assert visible_gpus(LISTING, visible, CUT) == expected


def test_where_all_gpus_are_in_slices_cuda_shows_the_first():
    assert visible_gpus(LISTING.splitlines()[0], None, CUT) == [SMALL]


@pytest.mark.parametrize(
    ("visible", "expected"), [("GPU-b", [T4]), ("GPU-", []), ("GPU-aa,GPU-bb", [H100, T4])]
)
def test_a_uuid_may_be_cut_short_as_far_as_it_is_of_one(visible, expected):
    assert visible_gpus(LISTING, visible, LISTING) == expected


def test_what_is_no_listing_lists_nothing():
    assert visible_gpus("No devices were found\n0, a, b, [N/A], [N/A]\n", None) == []


def test_the_tool_is_asked(tmp_path, monkeypatch):
    """A real program in the tool's place; one that fails lists nothing."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!{sys.executable}\nprint('''{LISTING}''')\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus({}) == [H100, T4]
    assert gpus({"CUDA_VISIBLE_DEVICES": "1"}) == [T4]
    by_words = f"import sys\nprint({LISTING!r} if len(sys.argv) > 2 else {CUT!r})\n"
    tool.write_text(f"#!{sys.executable}\n{by_words}")
    assert gpus({"CUDA_VISIBLE_DEVICES": "MIG-2222"}) == [LARGE]
    tool.write_text(f"#!{sys.executable}\nimport sys\nsys.exit(9)\n")
    assert gpus({}) == []
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert gpus({}) == []


def test_gpus_that_are_not_used_are_named(tmp_path, monkeypatch):
    kfd = tmp_path / "kfd"
    assert unused_gpus(kfd) == []
    kfd.touch()
    assert [words.partition(":")[0] for words in unused_gpus(kfd)] == ["an AMD GPU (ROCm)"]
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    assert [words.partition(":")[0] for words in unused_gpus(tmp_path / "none")] == ["Apple's GPU (MPS)"]
