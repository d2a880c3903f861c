"""Private update of a client: the trained model's update, clipped and, with `local`, noisy.

The arithmetic is in `fedge.privacy.mechanism`, the guarantees are in docs/privacy.md.
"""

import numpy as np

from fedge.config.sections.privacy import PrivacyConfig
from fedge.privacy.mechanism import clipped, gaussian_multiplier
from fedge.privacy.noise import client_normals
from fedge.states.averaging import State


def private_state(
    config: PrivacyConfig,
    clip_norm: float | None,
    start: State,
    end: dict[str, np.ndarray],
    stream_key: tuple[int, ...],
    key: bytes = b"",
) -> tuple[dict[str, np.ndarray], bool | None]:
    """Trained model to send, and whether the update was clipped.

    Args:
        config: section `privacy`.
        clip_norm: clipping norm of its leaf; None if the client does not clip for the leaf.
        start: model received.
        end: model trained from it; it and the result have the names, shapes and dtypes of `start`.
        stream_key: seed, leaf round, client and so on, which determine its noise.
        key: secret of the client (`fedge.client.secret`), the source of noise for privacy.

    Returns:
        (state, whether it was clipped); None for the latter unless the leaf's norm is adaptive.
    """
    if config.kind not in ("client-fixed", "client-adaptive", "local"):
        return end, None
    limit = config.clip_norm if clip_norm is None or config.kind == "local" else clip_norm
    sent, was_clipped = clipped(start, end, limit)
    if config.kind == "local":
        std = local_noise_std(config)
        seed, *place = stream_key
        rng = client_normals(config, key, sent, seed, *place)
        for name, array in sent.items():
            if np.issubdtype(array.dtype, np.floating):
                sent[name] = array + std * rng.standard_normal(array.shape)
    state = {name: array.astype(end[name].dtype) for name, array in sent.items()}
    return state, was_clipped if config.kind == "client-adaptive" else None


def local_noise_std(config: PrivacyConfig) -> float:
    """Standard deviation of a client's noise per number, for a leaf round within its budget.

    Two updates of norm C are at most 2C apart.
    """
    return 2 * config.clip_norm * gaussian_multiplier(config.epsilon, config.delta)
