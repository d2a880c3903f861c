"""States of any shapes and dtypes, for properties that hold for all of them."""

import numpy as np
from hypothesis import strategies as st

numbers = st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e-45, 1e20, 1e30, -3e38])
moderate = st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e-45, 1e4, 1e16])
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
dtypes = st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8])


@st.composite
def states(draw, sane=False):
    """A state of a few entries of any shape and dtype, all finite; `sane`: none of them huge."""
    state = {}
    for index in range(draw(st.integers(1, 4))):
        shape, dtype = draw(shapes), draw(dtypes)
        values = draw(st.lists(moderate if sane else numbers, min_size=1, max_size=4))
        with np.errstate(all="ignore"):
            flat = np.resize(np.array(values), int(np.prod(shape, dtype=int)))
            if not np.issubdtype(dtype, np.floating):
                flat = np.arange(flat.size)
            elif dtype is np.float16:
                flat = np.clip(flat, -6e4, 6e4)
            state[f"entry-{index}"] = flat.astype(dtype).reshape(shape)
    return state
