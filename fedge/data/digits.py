"""Example images: 1,797 handwritten digits from scikit-learn, without a download.

They are the test part of "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak 1998, UCI Machine
Learning Repository, CC BY 4.0): 8 × 8 pixels, 0..16. The writers are not in the file.
"""

import numpy as np

from fedge.config.registers.option import ConfigError
from hhar.windows.window_file import Windows

_LARGEST_VALUE = 16  # of a pixel


def digits(users: int = 10) -> Windows:
    """The digits as images (1797, 1, 8, 8), float32 from 0 to 1.

    Args:
        users: number of equal blocks, in the order of the file, each treated as one user.

    Raises:
        ConfigError: there are too few images for so many users.
    """
    from sklearn.datasets import load_digits  # takes a second to load

    if not 1 <= users <= 100:
        raise ConfigError(f"data.path-args.users must be 1 to 100, but is {users}; take for example 10")
    dataset = load_digits()
    count = len(dataset.target)
    block = np.arange(count) * users // count
    return Windows(
        x=(dataset.images[:, None] / _LARGEST_VALUE).astype(np.float32),
        y=dataset.target.astype(np.int64),
        user=np.array([f"block-{number:02d}" for number in block]),
        device=None,
        session=None,
        classes=tuple(str(digit) for digit in range(10)),
        channels=("brightness",),
    )
