"""Scikit-learn's diabetes patients as numbers to learn."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from fedge.config.registers.option import ConfigError
from fedge.data.examples.diabetes import diabetes
from hhar.windows.window_file import check_windows


def test_they_are_the_real_patients_in_the_order_of_the_file():
    """Raw measurements, the least and the greatest progression as the paper has them: 25 and 346."""
    windows, real = diabetes(), load_diabetes(scaled=False)
    check_windows(windows, "diabetes")
    np.testing.assert_array_equal(windows.x, real.data.astype(np.float32))
    np.testing.assert_allclose(100 * windows.y, real.target, rtol=1e-6)
    assert (windows.y.min(), windows.y.max()) == (np.float32(0.25), np.float32(3.46))
    assert windows.channels[:3] == ("age", "sex", "bmi")


def test_users_are_blocks_of_equal_size():
    users, counts = np.unique(diabetes(users=7).user, return_counts=True)
    assert users.tolist() == [f"clinic-{number:02d}" for number in range(7)]
    assert set(counts) <= {63, 64}


def test_too_many_users_are_refused():
    with pytest.raises(ConfigError, match="must be 1 to 40, but is 41"):
        diabetes(users=41)
