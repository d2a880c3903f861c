"""The native step in a program of its own: under sanitizers, and on a processor that is emulated.

In soak; a sample of the odd networks (another with another FEDGE_DAY) in extended. Address, undefined and
thread sanitizers need g++ with its libraries. For NEON, `FEDGE_CROSS` names an aarch64 C++ compiler with its
options, and `FEDGE_EMULATOR` what runs its programs, as qemu-aarch64-static.
"""

import math
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from any_networks import kernels, learnable, random_network
from daily import DAY
from image_networks import image_case
from odd_networks import WINDOWS as ODD_WINDOWS
from odd_networks import odd_case, odd_terms, odd_windows
from sequence_networks import sequence_case

from fedge.native.build import build
from fedge.native.operations import HANDLERS
from fedge.native.plan import flat_array
from fedge.native.program import dropouts_of, encoded, entries_of
from fedge.native.trace import trace_operations

MAIN = Path(__file__).parents[2] / "support" / "networks" / "native_program.cpp"
SEEDS = range(12)
C, T, CLASSES, WINDOWS, EPOCHS, BATCH = 5, 37, 4, 43, 2, 16
HERE = kernels() or ("plain",)
ODD = 1000 + 2 * DAY  # the first of the day's odd networks

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


def write_case(path, seed):
    """Write a random network with windows, options and masks; returns how many weights and buffers it has."""
    model = random_network(seed, C, T, CLASSES, dropout=True)
    x, y = learnable(WINDOWS, C, T, CLASSES)
    terms = [0.05, 0.9, 1e-3, 1.0, 0.1, 0.1]
    content, floats = case_of(model, (C, T), x, y, terms, BATCH, seed)
    path.write_bytes(content)
    return floats


def case_of(model, shape, x, y, terms, batch, seed):
    """A case in bytes, and how many weights and buffers it has."""
    rng, windows = np.random.default_rng(seed), len(y)
    numbers = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    weights = entries_of(
        {name: tuple(p.shape) for name, p in model.named_parameters() if p.requires_grad},
        {name: tuple(p.shape) for name, p in model.named_parameters() if not p.requires_grad},
    )
    tokens = len(shape) == 1
    learning, serving = (trace_operations(model, shape, mode, HANDLERS, tokens) for mode in (True, False))
    pairs = [name for node in learning.nodes for name in node.buffers]
    buffers = entries_of({}, {name: tuple(numbers[name].shape) for name in pairs})
    programs = [encoded(net, weights, buffers, mode) for net, mode in ((learning, True), (serving, False))]
    masks = rng.integers(0, 2, windows * sum(d.mask_bytes for d in dropouts_of(learning))).astype(np.uint8)
    per_window, held = math.prod(shape), (weights.floats, buffers.floats)
    sizes = [batch, len(programs[0]), *held, windows, per_window, EPOCHS, len(masks)]
    order = np.concatenate([rng.permutation(windows) for _ in range(EPOCHS)])
    parts = [
        np.array(sizes, np.int64), programs[0], np.array([len(programs[1])], np.int64), programs[1],
        y.numpy(), order.astype(np.int64), np.array(terms, np.float64), flat_array(weights, numbers),
        flat_array(buffers, numbers), 0.01 * rng.standard_normal(weights.floats).astype(np.float32),
        x.numpy(), masks,
    ]  # fmt: skip
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts), sum(held)


def results(program, folder, kernel, threads, before=()):
    """Carry out all cases; returns their weights and buffers."""
    found = []
    for seed in SEEDS:
        case, out = folder / f"{seed}.case", folder / f"{seed}.{kernel}"
        floats = write_case(case, seed)
        done = subprocess.run(
            [*before, program, case, out, kernel, str(threads)], capture_output=True, text=True, check=False,
            env={**os.environ, "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"},
        )  # fmt: skip
        assert done.returncode == 0, f"seed {seed}: {done.returncode} {done.stderr[-3000:]}"
        found.append(np.fromfile(out, np.float32, floats).astype(np.float64))
    return found


def assert_close(got, expected):
    """Kernels differ in last bits only, and in what these make of a ReLU's edge."""
    for one, other in zip(got, expected, strict=True):
        assert np.isfinite(one).all()
        assert np.linalg.norm(one - other) <= 2e-3 * np.linalg.norm(other)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Results of the plain kernel, without a sanitizer."""
    folder = tmp_path_factory.mktemp("plain")
    program = build(folder / "program", flags=("-pthread",), main=MAIN)
    return results(program, folder, "plain", 2)


@pytest.mark.soak
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(sanitizer, plain, tmp_path):
    flags = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-g", "-O2", "-pthread")
    program = build(tmp_path / "program", ["g++"], flags, main=MAIN)
    threads = 3 if sanitizer == "thread" else 1
    for kernel in HERE:
        assert_close(results(program, tmp_path, kernel, threads), plain)
        results(program, tmp_path, f"{kernel}_bf16", threads)


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    """The program under address and undefined sanitizers, also of floats that no integer holds."""
    flags = ("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all", "-g", "-O1")
    return build(tmp_path_factory.mktemp("strict") / "program", ["g++"], (*flags, "-pthread"), main=MAIN)


def odd_cases(path, seeds, draw):
    """Write all odd windows of all odd networks, with odd terms of a step; returns their names."""
    names = []
    with path.open("wb") as file:
        for seed in seeds:
            case = draw(seed)
            for kind in ODD_WINDOWS:
                x, y = odd_windows(kind, case, seed)
                terms = list(odd_terms(seed).values())
                file.write(case_of(case.model, case.shape, x, y, terms, case.batch, seed)[0])
                names.append(f"network {seed}, {kind}")
    return names


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(ODD, ODD + 2), marks=pytest.mark.extended),
     pytest.param(range(150), marks=[pytest.mark.soak, pytest.mark.timeout(7200)])],
    ids=["sample", "all"],
)  # fmt: skip
@pytest.mark.parametrize("draw", [odd_case, image_case, sequence_case], ids=["series", "images", "sequences"])
def test_sanitizers_find_nothing_in_odd_networks(strict, tmp_path, seeds, draw):
    """Every kernel that this processor has, factors rounded and not, on every kind of odd windows."""
    names = odd_cases(tmp_path / "cases", seeds, draw)
    kernels_here = [name for kernel in HERE for name in (kernel, f"{kernel}_bf16")]
    for kernel in kernels_here:
        done = subprocess.run(
            [strict, tmp_path / "cases", tmp_path / "out", kernel, "1"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        begun = [line for line in done.stderr.splitlines() if line.startswith("case ")]
        assert done.returncode == 0, f"{kernel}: {names[len(begun) - 1]}: {done.stderr[-3000:]}"
        assert len(begun) == len(names)
    print(f"{len(seeds)} networks × {len(ODD_WINDOWS)} kinds of windows × {', '.join(kernels_here)}: "
          f"{len(names) * len(kernels_here)} runs, 0 findings")  # fmt: skip


@pytest.mark.soak
@pytest.mark.skipif("FEDGE_CROSS" not in os.environ, reason="FEDGE_CROSS names no compiler for aarch64")
def test_neon_under_an_emulator(plain, tmp_path):
    words = shlex.split(os.environ["FEDGE_CROSS"])
    before = shlex.split(os.environ.get("FEDGE_EMULATOR", ""))
    program = build(tmp_path / "program", words, ("-static", "-pthread"), family="aarch64", main=MAIN)
    for kernel in ("neon", "plain"):
        assert_close(results(program, tmp_path, kernel, 1, before), plain)
