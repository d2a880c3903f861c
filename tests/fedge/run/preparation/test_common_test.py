"""Windows of the common test set."""

from dataclasses import replace

import numpy as np
import pytest
from made_up import make_windows

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.data.partition import partition
from fedge.data.prepared import shape_of, write_client_data
from fedge.run.preparation import common_test
from fedge.run.preparation.common_test import examples_of_file, parts_of_clients, refuse_other_common_test
from hhar.windows.window_file import save_windows

ROWS = [(user, None, f"s{n}", label) for user in "abcdef" for label in (0, 1) for n in range(4) for _ in "12"]


@pytest.fixture(name="windows")
def fixture_windows():
    windows = make_windows(ROWS, classes=2)
    x = np.random.default_rng(0).normal(size=windows.x.shape).astype(np.float32)
    return replace(windows, x=x)


def test_clients_windows_come_in_parts_without_unseen_ones(windows, tmp_path, monkeypatch):
    """All known clients' test windows, each once, scaled as the clients have them."""
    config = from_run_config({"hierarchy.num-servers": 2, "partition.unseen-clients": 1})
    dealt = partition(windows, config, [3, 3], 0)
    shape = write_client_data(tmp_path / "data", windows, dealt, True)
    rows = np.concatenate([p[2] for c, p in enumerate(dealt.clients) if c not in dealt.unseen_clients])
    mean, std = (np.float32(s).reshape(1, -1, 1) for s in (shape.mean, shape.std))
    for size, count in ((4096, 1), (1, 4)):
        monkeypatch.setattr(common_test, "_PART", size)
        found = list(parts_of_clients(tmp_path / "data", 6, dealt.unseen_clients)(1))
        assert len(found) == count
        x, y = (np.concatenate(each) for each in zip(*found, strict=True))
        np.testing.assert_array_equal(y, windows.y[rows])
        np.testing.assert_allclose(x, (windows.x[rows] - mean) / std, rtol=1e-5, atol=1e-6)


def test_of_a_file_that_says_parts_the_test_windows_are_taken(windows, tmp_path):
    """Scaled by the run's scale."""
    part = np.where(np.arange(len(windows.y)) % 3 == 0, "test", "train")
    save_windows(tmp_path / "own.npz", replace(windows, part=part))
    config = from_run_config({"evaluate.common": str(tmp_path / "own.npz")})
    channels = windows.x.shape[1]
    x, y = examples_of_file(config, replace(shape_of(windows), mean=(1.0,) * channels, std=(2.0,) * channels))
    np.testing.assert_array_equal(y, windows.y[::3])
    np.testing.assert_allclose(x, (windows.x[::3] - 1) / 2, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (None, "window file must exist"),
        (lambda w: replace(w, x=np.repeat(w.x, 2, axis=2)), "evaluate.common must hold windows"),
        (lambda w: replace(w, classes=(*w.classes, "more")), "of 2 classes, but"),
        (lambda w: replace(w, y=w.y + 0.5, classes=("a", "b")), "y"),
        (lambda w: replace(w, y=1 - w.y, classes=w.classes[::-1]), "must have the classes of data.path"),
        (lambda w: replace(w, channels=("odd", *w.channels[1:])), "must have the channels of data.path"),
    ],
)
def test_files_that_do_not_fit_are_refused(windows, tmp_path, change, words):
    """In one line that names the option."""
    if change is not None:
        save_windows(tmp_path / "own.npz", change(windows))
    config = from_run_config({"evaluate.common": str(tmp_path / "own.npz")})
    with pytest.raises(ConfigError) as refused:
        refuse_other_common_test(config, shape_of(windows), windows.classes, windows.channels)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_windows_that_clients_own_are_not_there(windows):
    """The server's own file is."""
    config, names = from_run_config({"evaluate.common": "test"}), (windows.classes, windows.channels)
    with pytest.raises(ConfigError, match="clients own them"):
        refuse_other_common_test(config, shape_of(windows), *names, owners=True)
