import json
import mmap
import os
import shutil
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import make_windows

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.register import search_folders
from fedge.data.partition import Partition, partition
from fedge.data.prepared import DataShape, load_source, open_client, write_client_data, write_frozen
from fedge.data.scaling import apply_scale, channel_sums, scale_of
from hhar.synthetic.generate import synthetic_windows
from hhar.windows.window_file import Windows, fingerprint, fingerprint_windows, save_windows


def windows_of(x):
    x = np.asarray(x, dtype=np.float32)
    n = len(x)
    y = np.arange(n, dtype=np.int64) % 2
    return Windows(x, y, np.array(["a"] * n), None, None, ("p", "q"), tuple("xyz"[: x.shape[1]]))


def one_each(*parts):
    return Partition([tuple(np.array(p) for p in client) for client in parts], "blocks")


def test_normalisation_by_hand(tmp_path):
    """Two channels, two samples. Training windows 0 and 2 hold 1, 3 | 5, 7 in channel 0: mean 4, std √5.

    Channel 1 is 10 throughout training: it is centred and not scaled. The test window 3 is far away and must
    not move the mean.
    """
    x = [[[1, 3], [10, 10]], [[4, 4], [10, 11]], [[5, 7], [10, 10]], [[1000, -1000], [12, 10]]]
    dealt = one_each(([0], [1], [3]), ([2], [1], [3]))
    write_client_data(tmp_path / "data", windows_of(x), dealt, normalize=True)
    first = open_client(str(tmp_path / "data"), 0)
    root = np.sqrt(5)
    np.testing.assert_allclose(first.train[0], [[[-3 / root, -1 / root], [0, 0]]], rtol=1e-6)
    np.testing.assert_allclose(first.val[0], [[[0, 0], [0, 1]]], rtol=1e-6)
    np.testing.assert_allclose(first.test[0], [[[996 / root, -1004 / root], [2, 0]]], rtol=1e-6)


def test_what_is_tested_on_does_not_influence_what_is_trained_on(tmp_path):
    x = np.random.default_rng(0).normal(size=(6, 2, 4))
    dealt = one_each(([0, 1], [2], [3]), ([4], [2], [5]))
    moved = x.copy()
    moved[[2, 3, 5]] *= 1000
    for name, values in (("one", x), ("two", moved)):
        write_client_data(tmp_path / name, windows_of(values), dealt, normalize=True)
    for client in (0, 1):
        one, two = (open_client(str(tmp_path / name), client) for name in ("one", "two"))
        assert one.train[0].tobytes() == two.train[0].tobytes()
        assert one.test[0].tobytes() != two.test[0].tobytes()


def test_normalisation_takes_little_memory(tmp_path):
    """float64 of one channel, not of all windows twice over."""
    x = np.random.default_rng(0).normal(size=(2000, 6, 128)).astype(np.float32)
    tracemalloc.start()
    apply_scale(x, scale_of([channel_sums(x[:1200])]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.6 * x.nbytes


def test_a_channel_that_is_constant_to_float32_is_not_blown_up(tmp_path):
    """9.81 but for one last bit: its standard deviation is rounding, not a scale."""
    x = np.full((40, 1, 3), 9.81, np.float32)
    x[0, 0, 0] = np.nextafter(x[0, 0, 0], np.float32(10))
    x[39] = 10.81
    dealt = one_each((range(38), [38], [39]))
    write_client_data(tmp_path / "data", windows_of(x), dealt, normalize=True)
    client = open_client(str(tmp_path / "data"), 0)
    assert np.abs(client.train[0]).max() < 1e-5
    np.testing.assert_allclose(client.test[0], 1.0, rtol=1e-5)


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_training_data_have_mean_0_and_std_1(tmp_path_factory, seed, shuffled):
    rng = np.random.default_rng(seed)
    x = rng.normal(rng.normal(size=(3, 1)) * 10, rng.uniform(0.1, 10, (3, 1)), (30, 3, 8))
    order = rng.permutation(30) if shuffled else np.arange(30)
    dealt = one_each(
        (np.sort(order[:10]), order[10:12], order[12:15]), (order[15:25], order[25:28], order[28:])
    )
    folder = tmp_path_factory.mktemp("data") / "data"
    write_client_data(folder, windows_of(x), dealt, normalize=True)
    train = np.concatenate([open_client(str(folder), k).train[0] for k in (0, 1)]).astype(np.float64)
    np.testing.assert_allclose(train.mean(axis=(0, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(train.std(axis=(0, 2)), 1, atol=1e-5)


def test_slices_are_the_original_windows(tmp_path):
    windows = synthetic_windows(num_users=3, seed=0)
    dealt = partition(windows, from_run_config({}), [2, 1], 5)
    shape = write_client_data(tmp_path / "data", windows, dealt, normalize=False)
    assert shape == DataShape(windows.x.shape[1:], len(windows.classes))
    for k, parts in enumerate(dealt.clients):
        client = open_client(str(tmp_path / "data"), k)
        assert client.classes == len(windows.classes)
        for (x, y), indices in zip((client.train, client.val, client.test), parts, strict=True):
            assert x.dtype == np.float32
            assert y.dtype == np.int64
            assert x.tobytes() == windows.x[indices].tobytes()
            assert y.tolist() == windows.y[indices].tolist()


def is_mapped(array):
    """Whether an array's memory is a mapped file."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)


def test_clients_map_the_files_and_cannot_write(tmp_path):
    write_client_data(tmp_path / "data", windows_of(np.ones((3, 1, 2))), one_each(([0], [1], [2])), False)
    x, y = open_client(str(tmp_path / "data"), 0).train
    for array in (x, y):
        assert is_mapped(array)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_inputs_are_left_alone(tmp_path):
    windows = windows_of(np.random.default_rng(0).normal(size=(3, 1, 2)))
    before = windows.x.copy()
    write_client_data(tmp_path / "data", windows, one_each(([0], [1], [2])), normalize=True)
    assert (windows.x == before).all()


def test_an_older_folder_is_replaced_as_a_whole(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "stray").write_text("")
    (tmp_path / "data.tmp").mkdir()
    write_client_data(folder, windows_of(np.ones((3, 1, 2))), one_each(([0], [1], [2])), False)
    assert sorted(p.name for p in folder.iterdir()) == ["index.json", "x.npy", "y.npy"]
    assert [p.name for p in tmp_path.iterdir()] == ["data"]
    assert json.loads((folder / "index.json").read_text()) == {
        "classes": 2,
        "bounds": [{"start": 0, "val": 1, "test": 2, "stop": 3}],
        "eras": [[1, [0]]],
        "look_in": search_folders(),
    }


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of a file's size there")
def test_a_disk_that_fills_up_is_named_and_nothing_stays(tmp_path):
    """NumPy would say: 40000 requested and 3968 written."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            write_client_data(
                tmp_path / "data", windows_of(np.ones((3, 1, 3333))), one_each(([0], [1], [2])), False
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(tmp_path / "data.tmp" / "x.npy")
    assert list(tmp_path.iterdir()) == []


def test_a_client_or_folder_that_is_not_there(tmp_path):
    write_client_data(tmp_path / "data", windows_of(np.ones((3, 1, 2))), one_each(([0], [1], [2])), False)
    for client in (-1, 1):
        with pytest.raises(IndexError, match=f"there is no client {client}: there are clients 0 to 0"):
            open_client(str(tmp_path / "data"), client)
    with pytest.raises(FileNotFoundError):
        open_client(str(tmp_path / "nowhere"), 0)


# --- which windows ------------------------------------------------------------------------------------


def test_auto_takes_the_prepared_file_and_else_the_synthetic_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "fedge.data.prepared.synthetic_windows", lambda num_users: synthetic_windows(num_users, bouts=1)
    )
    config = from_run_config({})
    _, source = load_source(config, 9)
    assert (source.name, source.synthetic) == ("synthetic HHAR (9 users)", True)
    prepared = save_windows(tmp_path / "data" / "hhar-windows.npz", windows_of(np.ones((4, 1, 2))))
    windows, source = load_source(config, 9)
    assert (len(windows), source.name, source.synthetic) == (4, "data/hhar-windows.npz", False)
    assert source.fingerprint == fingerprint(prepared)
    _, source = load_source(from_run_config({"data.path": "synthetic", "data.synthetic-users": 2}), 9)
    assert (source.name, source.synthetic) == ("synthetic HHAR (2 users)", True)


@pytest.mark.slow
def test_the_synthetic_set_grows_with_the_clients_and_knows_no_seed():
    windows, source = load_source(from_run_config({"data.path": "synthetic", "data.synthetic-users": 1}), 1)
    again, same = load_source(
        from_run_config({"data.path": "synthetic", "data.synthetic-users": 1, "seed": 3}), 1
    )
    assert windows.x.tobytes() == again.x.tobytes()
    assert source == same
    assert source.fingerprint == fingerprint_windows(windows)
    _, source = load_source(from_run_config({"data.path": "synthetic"}), 11)
    assert source.name == "synthetic HHAR (11 users)"


def test_a_missing_or_damaged_file_is_refused(tmp_path):
    path = tmp_path / "w.npz"
    with pytest.raises(ConfigError, match=r"^data\.path: .*w\.npz: window file must exist; make one with"):
        load_source(from_run_config({"data.path": str(path)}), 1)
    np.savez(path, x=np.ones(3))
    with pytest.raises(ConfigError, match=r"^data\.path: .*w\.npz: must hold the arrays x, y, user"):
        load_source(from_run_config({"data.path": str(path)}), 1)


def test_a_folder_of_the_same_name_is_another_folder(tmp_path):
    """As when a run was removed and another one has its name, in one process."""
    for value in (1, 2):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        dealt = one_each(([0], [1], [3]), ([2], [1], [3]))
        write_client_data(tmp_path / "run" / "data", windows_of([[[value]]] * 4), dealt, normalize=False)
        for client in (0, 1):
            assert open_client(str(tmp_path / "run" / "data"), client).train[0].tolist() == [[[value]]]


def test_a_client_costs_one_look_at_the_disk(tmp_path, monkeypatch):
    """Thousands ask in each round, and each look lets another thread have the interpreter."""
    folder = tmp_path / "data"
    write_client_data(
        folder, windows_of(np.ones((4, 1, 2))), one_each(([0], [1], [2]), ([3], [1], [2])), False
    )
    open_client(str(folder), 0)
    looks, stat = [], os.stat
    monkeypatch.setattr(os, "stat", lambda path, **options: looks.append(path) or stat(path, **options))
    open_client(str(folder), 1)
    assert looks == [f"{folder}/index.json"]


def test_frozen_entries_written_after_a_look_are_found(tmp_path):
    folder = tmp_path / "data"
    write_client_data(folder, windows_of(np.ones((3, 1, 2))), one_each(([0], [1], [2])), False)
    assert open_client(str(folder), 0).frozen == {}
    write_frozen(folder, {"body": np.array([1.5, 2.5])})
    assert open_client(str(folder), 0).frozen["body"].tolist() == [1.5, 2.5]


def images(dtype):
    """24 images of 2 channels, whose second is brighter."""
    rng = np.random.default_rng(3)
    x = rng.integers(0, 200, (24, 2, 4, 5)) + np.array([0, 55])[None, :, None, None]
    return Windows(
        x.astype(dtype), np.arange(24) % 2, np.repeat(["a", "b", "c"], 8), None, None, ("n", "y"), ("r", "g")
    )


def test_images_keep_their_shape_and_bytes_become_brightness(tmp_path):
    """By hand: bytes are 0..1 after division by 255, and each channel is scaled by its training images."""
    config = from_run_config({"hierarchy.num-servers": 1, "data.val-fraction": 0.2, "data.guard-windows": 0})
    windows = images(np.uint8)
    dealt = partition(windows, config, [3], 0)
    assert write_client_data(tmp_path / "plain", windows, dealt, normalize=False) == DataShape((2, 4, 5), 2)
    x, y = open_client(str(tmp_path / "plain"), 1).train
    own = dealt.clients[1][0]
    np.testing.assert_array_equal(x, windows.x[own].astype(np.float32) / np.float32(255))
    assert y.tolist() == windows.y[own].tolist()
    write_client_data(tmp_path / "scaled", windows, dealt, normalize=True)
    training = np.concatenate([open_client(str(tmp_path / "scaled"), client).train[0] for client in range(3)])
    np.testing.assert_allclose(training.mean(axis=(0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(training.std(axis=(0, 2, 3)), 1, atol=1e-5)


def test_a_data_set_of_ones_own_is_checked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "numbers_of_mine.py").write_text(
        "from fedge.data.digits import digits\ndef three():\n    return 3\n"
    )
    windows, source = load_source(
        from_run_config({"data.path": "numbers_of_mine:digits", "data.path-args.users": 3}), 9
    )
    assert (len(windows), source.name, source.synthetic) == (1797, "numbers_of_mine:digits", False)
    assert np.unique(windows.user).size == 3
    for changes, message in (
        (
            {"data.path": "numbers_of_mine:three"},
            "must return hhar.Windows, but returned a int; fedge.from_pandas",
        ),
        ({"data.path": "numbers_of_mine:digits", "data.path-args.users": 0}, "must be 1 to 100"),
        ({"data.path": "digits", "data.path-args.user": 3}, "did you mean users"),
        ({"data.path": "numbers_of_mine:digit"}, "did you mean digits"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_source(from_run_config(changes), 9)


LOADERS = """
import random

import numpy as np
import torch

from fedge.data.digits import digits

loaded = []

def noisy(draw):
    loaded.append(draw)
    windows = digits()
    windows.x[0, 0, 0, 0] += np.float32(draw())
    return windows

def of_numpy(): return noisy(np.random.rand)
def of_python(): return noisy(random.random)
def of_torch(): return noisy(lambda: float(torch.rand(())))
def seeded():
    np.random.seed(1)
    return of_numpy()
def in_order():
    next(iter(torch.utils.data.DataLoader([0])))  # draws a seed for workers that there are not
    return noisy(float)
def quiet(): return noisy(float)
"""


@pytest.mark.parametrize("name", ["of_numpy", "of_python", "of_torch", "seeded", "in_order", "quiet"])
def test_a_data_set_of_ones_own_follows_from_no_global_stream(name, tmp_path, monkeypatch):
    """Otherwise every process of a run would have other data. A long loading is not repeated needlessly."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "drawn_by_mine", raising=False)
    (tmp_path / "drawn_by_mine.py").write_text(LOADERS)
    config = from_run_config({"data.path": f"drawn_by_mine:{name}"})
    if name.startswith("of_"):
        with pytest.raises(ConfigError, match=rf"data.path drawn_by_mine:{name} must give the same.*\(0\)"):
            load_source(config, 9)
        return
    assert len(load_source(config, 9)[0]) == 1797
    assert len(sys.modules["drawn_by_mine"].loaded) == (1 if name == "quiet" else 2)


def test_more_synthetic_users_than_can_be_made_are_refused_at_once():
    """By the option, and by as many clients."""
    with pytest.raises(ConfigError, match=r"data\.synthetic-users must be at most 10000"):
        from_run_config({"data.synthetic-users": 10_001})
    config = from_run_config({"data.path": "synthetic"})
    with pytest.raises(
        ConfigError, match=r"at most 10000 users, .* but 10001 clients need 10001; set data\.path"
    ):
        load_source(config, 10_001)


def test_a_name_stands_for_a_file_of_the_folder_data(tmp_path, monkeypatch):
    """As `fedge datasets prepare motionsense` leaves it; a file of that very name comes first."""
    monkeypatch.chdir(tmp_path)
    config = from_run_config({"data.path": "motionsense"})
    make = "make it: fedge datasets download motionsense && fedge datasets prepare motionsense "
    with pytest.raises(ConfigError, match=f"data.path motionsense needs data/motionsense.npz.*{make}"):
        load_source(config, 2)
    with pytest.raises(ConfigError, match=r"data\.path digts needs .*; did you mean digits\?"):
        load_source(from_run_config({"data.path": "digts"}), 2)
    rows = [("a", None, None, 0), ("b", None, None, 1)]
    make_windows(rows).save("data/motionsense.npz")
    windows, source = load_source(config, 2)
    assert (len(windows), source.name, source.synthetic) == (2, "data/motionsense.npz", False)
    make_windows(rows * 2).save("motionsense")
    assert len(load_source(config, 2)[0]) == 4


@pytest.mark.parametrize("part", ["train", "test"])
def test_windows_too_large_for_the_common_scale_are_refused(tmp_path, part):
    """Where training windows hardly vary, another divided by their deviation is infinite."""
    x = np.random.default_rng(0).normal(size=(12, 2, 3)).astype(np.float32)
    x[:, 1] *= np.float32(1e-30)
    x[5, 1] = 1e17
    of_1 = ([6, 7, 8, 9], [10], [5]) if part == "test" else ([6, 7, 8, 5], [10], [9])
    dealt = one_each(([0, 1, 2, 3], [4], [11]), of_1)
    if part == "train":  # then its own size is the scale
        write_client_data(tmp_path / "data", windows_of(x), dealt, normalize=True)
        assert np.isfinite(np.concatenate(open_client(str(tmp_path / "data"), 1).train[0])).all()
        return
    with pytest.raises(ConfigError, match=r"of client 1 channel 'y' has numbers of more than 1e\+18 dev.*; "):
        write_client_data(tmp_path / "data", windows_of(x), dealt, normalize=True)
    write_client_data(tmp_path / "data", windows_of(x), dealt, normalize=False)
