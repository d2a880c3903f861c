"""Example of regression: the progress of diabetes in 442 patients, a data set of scikit-learn.

Ten measurements of each patient (age, sex, body mass index, blood pressure, six of blood serum) and how far
the disease had come a year later, 25 to 346 (Efron et al. 2004, "Least Angle Regression", Annals of
Statistics 32). Patients are in no order and of no known clinic.
"""

import numpy as np

from fedge.config.registers.option import ConfigError
from hhar.windows.window_file import Windows

_UNIT = 100.0  # of the disease's measure: y is 0.25 to 3.46, for the default step sizes


def diabetes(users: int = 10) -> Windows:
    """The patients as rows (442, 10), with y (442,) in hundreds of the measure; for `regression`.

    Args:
        users: number of equal blocks, in the order of the file, each treated as a clinic.

    Raises:
        ConfigError: there are too few patients for so many users.
    """
    from sklearn.datasets import load_diabetes  # takes a second to load

    if not 1 <= users <= 40:
        raise ConfigError(f"data.path-args.users must be 1 to 40, but is {users}; take for example 10")
    dataset = load_diabetes(scaled=False)
    count = len(dataset.target)
    return Windows(
        x=dataset.data.astype(np.float32),
        y=(dataset.target / _UNIT).astype(np.float32),
        user=np.array([f"clinic-{number:02d}" for number in np.arange(count) * users // count]),
        device=None,
        session=None,
        classes=("progression",),
        channels=tuple(str(name) for name in dataset.feature_names),
    )
