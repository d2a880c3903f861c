"""Means of nine and thirty models, summed at once and in three regions: how many float32 results differ.

    python -m benchmarks.size.region_sums

A region of one round sends its leaves' models instead of their float64 sum (docs/leaf-servers.md). Weights
are whole numbers of windows; models are normal numbers around a common one.
"""

import numpy as np

REGIONS, ENTRIES, DRAWS = 3, 2_000_000, 10


def main() -> None:
    """Print a line for three and for ten leaves per region."""
    rng = np.random.default_rng(0)
    for leaves in (3, 10):
        windows = rng.integers(100, 2000, REGIONS * leaves).astype(float)
        differ = sum(differing(rng, windows / windows.sum(), leaves) for _ in range(DRAWS))
        print(f"{REGIONS} regions of {leaves} leaves: {differ} of {DRAWS * ENTRIES:,} means differ")


def differing(rng: np.random.Generator, shares: np.ndarray, leaves: int) -> int:
    """Number of drawn means depending on the order of summation, rounded to float32.

    Args:
        rng: generator for the models.
        shares: weight of each leaf, with sum 1.
        leaves: leaves per region.
    """
    common = rng.normal(0, 0.05, ENTRIES)
    models = [(common + rng.normal(0, 0.01, ENTRIES)).astype(np.float32) for _ in shares]
    terms = [share * model.astype(np.float64) for share, model in zip(shares, models, strict=True)]
    flat_sum = sum(terms[1:], terms[0])
    regions = [sum(terms[i + 1 : i + leaves], terms[i]) for i in range(0, len(terms), leaves)]
    region_sum = sum(regions[1:], regions[0])
    return int((flat_sum.astype(np.float32) != region_sum.astype(np.float32)).sum())


if __name__ == "__main__":
    main()
