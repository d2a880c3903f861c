"""Differential privacy of clients by Flower's own wrappers (at the leaf) and modifiers (at the client).

Central: each update is clipped to a norm, at the leaf or at the client, and the leaf adds Gaussian noise to
the mean (McMahan et al. 2018, "Learning Differentially Private Recurrent Language Models"); the norm is fixed
or follows a quantile of the updates' norms (Andrew et al. 2021, "Differentially Private Learning with
Adaptive Clipping"). Local: each client adds the noise itself. All replies weigh alike, because the noise is
measured for a plain mean. Nothing here adds up a privacy budget over rounds, and what clients measure
(losses, confusion matrices, numbers of windows) goes without noise.

Flower draws its noise from NumPy's global state. It is lent a stream of the run's own for the moment of the
draw, and gets its own back, so that contracts C2 and C3 hold with noise as well.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.common.differential_privacy_constants import KEY_CLIPPING_NORM, KEY_NORM_BIT
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    Strategy,
)

from fedge.config.sections import PrivacyConfig
from fedge.exchange.content import ARRAYS, CONFIG, METRICS, NUM_EXAMPLES
from fedge.seeding import Purpose, legacy_stream
from fedge.states.averaging import State
from fedge.states.records import from_record

_numpy_state = threading.Lock()


class _UnclippedQuantile:
    """Moves the clipping norm as Andrew et al. do: up when more updates are clipped than should be.

    Flower 1.25 passes the share of clipped updates where the formula takes that of unclipped ones, so that
    its norm falls as long as all updates are clipped.
    """

    def _geometric_update(self, clipped_fraction: float) -> None:
        super()._geometric_update(1.0 - clipped_fraction)  # type: ignore[misc]


class _ServerSideAdaptive(_UnclippedQuantile, DifferentialPrivacyServerSideAdaptiveClipping):
    pass


class _ClientSideAdaptive(_UnclippedQuantile, DifferentialPrivacyClientSideAdaptiveClipping):
    pass


def with_privacy(strategy: Strategy, config: PrivacyConfig, num_training: int) -> Strategy:
    """Return a leaf's strategy in the wrapper that `config` asks for, or as it is.

    Args:
        strategy: takes the mean of the replies.
        config: of the run.
        num_training: clients of the leaf that train in a leaf round.
    """
    fixed: dict[str, Any] = {
        "strategy": strategy,
        "noise_multiplier": config.noise_multiplier,
        "num_sampled_clients": num_training,
    }
    adaptive: dict[str, Any] = {
        "initial_clipping_norm": config.clip_norm,
        "target_clipped_quantile": config.clip_quantile,
        "clip_norm_lr": config.clip_lr,
    }
    if config.kind == "server-fixed":
        return DifferentialPrivacyServerSideFixedClipping(**fixed, clipping_norm=config.clip_norm)
    if config.kind == "client-fixed":
        return DifferentialPrivacyClientSideFixedClipping(**fixed, clipping_norm=config.clip_norm)
    if config.kind == "server-adaptive":
        return _ServerSideAdaptive(**fixed, **adaptive)
    if config.kind == "client-adaptive":
        return _ClientSideAdaptive(**fixed, **adaptive)
    return strategy


def private_state(
    config: PrivacyConfig,
    clip_norm: float | None,
    start: State,
    end: dict[str, np.ndarray],
    where: tuple[int, ...],
) -> tuple[dict[str, np.ndarray], bool | None]:
    """Return, at a client, what it may send of its trained model, and whether the update had to be clipped.

    Args:
        config: of the run.
        clip_norm: what its leaf asks for; None where the client does not clip for the leaf.
        start: the model that it was sent.
        end: the model that it trained.
        where: seed, leaf round, client and so on, from which its noise follows.

    Raises:
        ValueError: the update is zero, which Flower's modifiers divide by; or they refuse it.
    """
    if config.kind not in ("client-fixed", "client-adaptive", "local"):
        return end, None
    if all(np.array_equal(start[name], end[name]) for name in end):
        raise ValueError("the client's model did not change, so its update cannot be clipped")
    mod: Any
    if config.kind == "local":
        # two updates of norm C are at most 2C apart
        mod = LocalDpMod(config.clip_norm, 2 * config.clip_norm, config.epsilon, config.delta)
    else:
        mod = fixedclipping_mod if config.kind == "client-fixed" else adaptiveclipping_mod
    limit = config.clip_norm if clip_norm is None else clip_norm
    asked = Message(
        RecordDict({ARRAYS: _arrays(start), CONFIG: ConfigRecord({KEY_CLIPPING_NORM: limit})}), 0, "train"
    )
    trained = Message(
        RecordDict({ARRAYS: _arrays(end), METRICS: MetricRecord({NUM_EXAMPLES: 1})}), reply_to=asked
    )
    nowhere = Context(0, 0, {}, RecordDict(), {})
    with numpy_draws_from(*where):
        reply = mod(asked, nowhere, lambda *_: trained)
    if reply.has_error():
        raise ValueError(reply.error.reason)
    clipped = reply.content.metric_records[METRICS].get(KEY_NORM_BIT)
    sent = from_record(reply.content.array_records[ARRAYS])
    return {n: a.astype(end[n].dtype) for n, a in sent.items()}, None if clipped is None else bool(clipped)


@contextmanager
def numpy_draws_from(seed: int, *where: int) -> Iterator[None]:
    """Lend NumPy's global state the noise stream of (seed, *where); one thread at a time."""
    with _numpy_state:
        before = np.random.get_state()  # noqa: NPY002  it is Flower that uses the global state
        np.random.set_state(legacy_stream(seed, Purpose.NOISE, *where).get_state())  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(before)  # noqa: NPY002


def _arrays(state: State) -> ArrayRecord:
    """Return a state as Flower's own arrays, which it may write to."""
    return ArrayRecord({name: Array(np.ascontiguousarray(state[name])) for name in state})
