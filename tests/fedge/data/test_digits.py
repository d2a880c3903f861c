"""The digits of scikit-learn as a data set of images."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedge.config.registers.option import ConfigError
from fedge.data.digits import digits
from hhar.windows.window_file import check_windows


def test_they_are_the_real_images_in_the_order_of_the_file():
    windows = digits()
    check_windows(windows, "digits")
    assert windows.x.shape == (1797, 1, 8, 8)
    np.testing.assert_array_equal(windows.x[:, 0] * 16, load_digits().images)
    assert windows.y.tolist() == load_digits().target.tolist()
    assert windows.classes == tuple("0123456789")


def test_users_are_blocks_of_equal_size():
    users, counts = np.unique(digits(users=7).user, return_counts=True)
    assert users.tolist() == [f"block-{number:02d}" for number in range(7)]
    assert set(counts) <= {256, 257}


def test_too_many_users_are_refused():
    with pytest.raises(ConfigError, match="must be 1 to 100, but is 0"):
        digits(users=0)
