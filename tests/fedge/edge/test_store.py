"""Files of a leaf server on its disk: versions of control variates, and models under names."""

import numpy as np
import pytest
from damage import cut, empty, flip, grown, removed
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.registers.option import ConfigError
from fedge.edge.store import KeptStates


def control(value):
    return {"w": np.full(3, value), "b": np.array([value, -value])}


@pytest.fixture
def kept(tmp_path):
    return KeptStates(tmp_path)


def test_versions_of_control_variates_survive_the_process(kept, tmp_path):
    kept.write_controls(1, {5: control(0.5)})
    kept.write_controls(4, {5: control(1.5), 12: control(2.5)})
    again = KeptStates(tmp_path)
    assert again.read_controls(0) == {}
    assert {c: own["w"][0] for c, own in again.read_controls(1).items()} == {5: 0.5}
    found = again.read_controls(4)
    assert {c: own["b"].tolist() for c, own in found.items()} == {5: [1.5, -1.5], 12: [2.5, -2.5]}
    assert {array.dtype for own in found.values() for array in own.values()} == {np.dtype(np.float64)}


def test_versions_that_nobody_needs_are_forgotten(kept, tmp_path):
    for version in (1, 2, 3, 10):
        kept.write_controls(version, {0: control(version)})
    kept.forget_controls(keep=[2, 10])
    assert kept.read_controls(2)[0]["w"][0] == 2
    assert kept.read_controls(10)[0]["w"][0] == 10
    with pytest.raises(ConfigError, match="--folder must have the control variates of leaf round 3, but in "):
        kept.read_controls(3)
    assert len(list((tmp_path / "controls").iterdir())) == 2 * 2


@given(seed=st.integers(0, 2**32 - 1), how=st.sampled_from([flip, cut, empty, removed, grown]))
def test_a_damaged_version_is_none_and_told_in_one_line(tmp_path_factory, seed, how):
    """In the file itself or in its checksum: other numbers than those that were kept never come back."""
    folder, rng = tmp_path_factory.mktemp("kept"), np.random.default_rng(seed)
    kept = KeptStates(folder)
    kept.write_controls(7, {5: control(0.5), 6: control(1.5)})
    files = sorted((folder / "controls").iterdir())
    path = files[rng.integers(len(files))]
    before = path.read_bytes()
    how(path, None, rng)
    if path.exists() and path.read_bytes() == before:
        return
    with pytest.raises(ConfigError, match=r"of leaf round 7, but in .*; start the") as raised:
        kept.read_controls(7)
    assert str(raised.value).isprintable()


def test_folds_take_the_place_of_those_before(kept):
    kept.write_folds({"fold-1-0": control(1.0), "fold-1-1": control(2.0)})
    kept.write_folds({"fold-2-0": control(3.0)})
    assert kept.fold("fold-2-0")["w"].tolist() == [3, 3, 3]
    with pytest.raises(FileNotFoundError, match="there is no model 'fold-1-0'"):
        kept.fold("fold-1-0")


def test_a_name_does_not_lead_out_of_the_folder(kept, tmp_path):
    kept.write_controls(1, {0: control(1.0)})
    with pytest.raises(FileNotFoundError, match="there is no model"):
        kept.fold("../controls/1")
