"""A data set: a function that returns `hhar.Windows`; here real images, with rows as time steps."""

import numpy as np
from sklearn.datasets import load_digits

from hhar import Windows


def rows_of_digits(writers: int = 10) -> Windows:
    """1,797 handwritten digits as windows of 8 samples (rows) of 8 channels (columns).

    Writers are unknown, so the file is cut into `writers` consecutive blocks.
    """
    digits = load_digits()
    count = len(digits.target)
    writer = np.arange(count) * writers // count
    return Windows(
        x=digits.images.transpose(0, 2, 1).astype(np.float32),
        y=digits.target.astype(np.int64),
        user=np.array([f"writer-{number:02d}" for number in writer]),
        device=None,
        session=None,
        classes=tuple("0123456789"),
        channels=tuple(f"column-{number}" for number in range(8)),
    )
