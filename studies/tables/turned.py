"""Groups of leaves whose images are turned: by quarters of a circle, or each by a little more."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import ndimage

from fedge.data.scenario import Change

QUARTER = 90.0


@dataclass(frozen=True)
class Turned(Change):
    """Images turned by an angle in degrees, anticlockwise; pixels from outside are dark."""

    degrees: float = 0.0

    def apply(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Images (N, C, H, W) turned, and labels (N,) as they are."""
        if self.degrees % QUARTER == 0:
            quarters = int(self.degrees // QUARTER)
            return np.ascontiguousarray(np.rot90(x, quarters, axes=(2, 3))), y
        turned = ndimage.rotate(x.astype(np.float32), self.degrees, axes=(3, 2), reshape=False, order=1)
        return np.ascontiguousarray(turned.astype(x.dtype)), y

    def describe(self) -> dict[str, Any]:
        """The angle."""
        return {"degrees": self.degrees}


def planted(count: int, channels: Sequence[str], classes: int, rng: np.random.Generator) -> list[Change]:
    """Group g turned by g quarters of a circle."""
    return [Turned(degrees=QUARTER * group) for group in range(count)]


def graded(count: int, channels: Sequence[str], classes: int, rng: np.random.Generator) -> list[Change]:
    """Groups from upright to a quarter of a circle in equal steps: neighbours are alike, the ends are not."""
    return [Turned(degrees=QUARTER * group / max(1, count - 1)) for group in range(count)]
