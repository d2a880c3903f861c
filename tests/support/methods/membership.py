"""A membership attack on what a leaf, or a client, releases; and how much privacy loss it proves.

The adversary knows all but whether a canary took part: a client whose update is as far from the others' as
may be, in a direction that it knows (Nasr et al. 2021, "Adversary Instantiation", its strongest adversary).
Over many releases with and without the canary it decides by the likelihood ratio; a threshold is chosen on
the first half of them and judged on the second.

From false and true positives come two lower bounds on ε, each of confidence 1 − alpha (Clopper and Pearson):

    any mechanism   ln((TPR − δ) / FPR), and the same with the roles of both worlds exchanged
                    (Jagielski et al. 2020, "Auditing Differentially Private Machine Learning", section 4)
    a Gaussian one  μ = Φ⁻¹(TPR) − Φ⁻¹(FPR), and the ε of that μ at δ
                    (Nasr et al. 2023, "Tight Auditing of Differentially Private Machine Learning", section 4)

The second is tight, and tells half the noise from all of it with some hundred releases.
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import beta, norm

from fedge.client.privacy import private_state
from fedge.config.flat import from_run_config
from fedge.devices.servers.arrivals import Arrival, Memory
from fedge.devices.servers.private_buffer import private_sum
from fedge.devices.servers.rules import fedbuff
from fedge.exchange.train import TrainReply
from fedge.leaf.strategies.rules import combine, make_strategy
from fedge.privacy.mechanism import count_std, gaussian_log_delta, update_multiplier
from fedge.training.schedule import local_training

KINDS = ("server-fixed", "server-adaptive", "client-fixed", "client-adaptive", "local")
ASKED, OTHERS, SIZE = 64, 3, 4
BUFFER = 8  # of FedBuff
CLIP, NOISE, EPSILON, DELTA = 0.7, 1.0, 4.0, 1e-5
MODEL = {"w": np.full(SIZE, 0.25)}
FAR = 1e3  # what a client that clips nothing would send


def config_of(kind):
    """A run with a kind of privacy."""
    return from_run_config(
        {
            "scaffold.enabled": False,
            "train.model": "linear",
            "privacy.kind": kind,
            "privacy.clip-norm": CLIP,
            "privacy.noise-multiplier": NOISE,
            "privacy.epsilon": EPSILON,
            "privacy.delta": DELTA,
        }
    )


def scores(kind, world, trials, rounds=1):
    """The adversary's scores of releases, by all that it sees and by models alone: float64 (trials, 2).

    Args:
        kind: of privacy.
        world: True: the canary took part (local: one set of windows); False: it did not (local: the other).
        trials: releases, or series of `rounds` of them; each has noise of its own.
        rounds: leaf rounds of which the adversary sees all.
    """
    attack = _local_score if kind == "local" else _central_score
    config = config_of(kind)
    first = 10**6 if world else 0  # seeds of both worlds differ, else their noise would be the same
    return np.array([attack(config, world, first + trial, rounds) for trial in range(trials)])


def _sent(config, length, clip_norm, where):
    """Update sent by a client of the run, of a given length along the canary's direction."""
    end = {"w": MODEL["w"].copy()}
    end["w"][0] += length
    state, was_clipped = private_state(config.privacy, clip_norm, MODEL, end, where)
    return state, was_clipped


def _central_score(config, world, seed, rounds):
    """Likelihood ratio of what the leaf makes public: models, and what they tell of the clipping norm."""
    strategy = make_strategy(config, ASKED)
    settings, by_models, by_norms = local_training(config.train, 1), 0.0, 0.0
    adaptive = config.privacy.is_adaptive
    for leaf_round in range(1, rounds + 1):
        clip_norm, replies = strategy.clip_norm, []
        told = clip_norm if config.privacy.kind.startswith("client") else None
        for client in range(OTHERS + world):
            length = FAR if client == OTHERS else 0.0
            state, was_clipped = _sent(config, length, told, (seed, leaf_round, client))
            replies.append(TrainReply(state, 10, 1, 0.5, 0, 0, was_clipped))
        made = combine(strategy, MODEL, MODEL, replies, ["w"], settings, seed, (leaf_round, 0))
        count_noise = count_std(ASKED, NOISE)
        multiplier = update_multiplier(NOISE, count_noise) if adaptive else NOISE
        moved = (made["w"][0] - MODEL["w"][0]) * ASKED / clip_norm  # 1 with the canary, 0 without
        by_models += moved / multiplier**2
        if adaptive:  # the canary is clipped, so the count has half less
            step = math.log(strategy.clip_norm / clip_norm) / config.privacy.clip_lr
            without = 0.5 + OTHERS * 0.5 / ASKED
            gone = (
                without - config.privacy.clip_quantile + step
            ) * ASKED  # a half with the canary, 0 without
            by_norms += gone * 0.5 / count_noise**2
    return by_models + by_norms, by_models


def buffer_scores(world, trials, places):
    """Scores of releases of FedBuff's buffers, (trials, 1), in which the canary has so many places each."""
    config = config_of("server-fixed")
    first = 10**6 if world else 0
    found = []
    for trial in range(trials):
        memory, w, total = Memory(ASKED), MODEL["w"], 0.0
        memory.private = private_sum(config.privacy, first + trial, 0, ASKED)
        far, nothing = w.copy(), w
        far[0] += FAR
        for count in places:
            ends = [far if world else nothing] * count + [nothing] * (BUFFER - count)
            children = [0] * count + list(range(1, BUFFER - count + 1))
            for child, end in zip(children, ends, strict=True):
                made = fedbuff(w, memory, Arrival(child, 0, w, end), buffer=BUFFER)
            total += count * (made[0] - w[0]) * BUFFER / CLIP
        found.append([total])
    return np.array(found)


def _local_score(config, world, seed, rounds):
    """The client's update along the direction in which its two sets of windows differ."""
    total = 0.0
    for leaf_round in range(1, rounds + 1):
        state, _ = _sent(config, FAR if world else -FAR, None, (seed, leaf_round, 0))
        total += state["w"][0] - MODEL["w"][0]
    return total, total


def proven(with_canary, without, delta, alpha=1e-3):
    """Lower bounds on ε that scores of both worlds prove: (any mechanism, a Gaussian one).

    Which score, and at which threshold, comes from the first half of the scores, the bound from the second.
    """
    half, found = len(without) // 2, []
    for bound in (_any, _gaussian):
        tried = [
            (_judged(with_canary[:half, by], without[:half, by], at, delta, alpha, bound), by, at)
            for by in range(with_canary.shape[1])
            for at in np.quantile(
                np.concatenate([with_canary[:half, by], without[:half, by]]), np.linspace(0.002, 0.998, 120)
            )
        ]
        _, by, at = max(tried)
        judged = _judged(with_canary[half:, by], without[half:, by], at, delta, alpha, bound)
        found.append(max(0.0, judged))
    return tuple(found)


def _judged(first, second, at, delta, alpha, bound):
    """The bound at a threshold, from exact confidence limits of both rates, half of alpha each."""
    n, hits, alarms = len(first), int((first > at).sum()), int((second > at).sum())
    return bound(_lower(hits, n, alpha / 2), _upper(alarms, n, alpha / 2), delta)


def _lower(k, n, alpha):
    """Clopper and Pearson's lower limit of a probability."""
    return float(beta.ppf(alpha, k, n - k + 1)) if k else 0.0


def _upper(k, n, alpha):
    """The upper one."""
    return float(beta.ppf(1 - alpha, k + 1, n - k)) if k < n else 1.0


def _any(hit, alarm, delta):
    """ε ≥ ln((TPR − δ) / FPR), and of the complements ln((TNR − δ) / FNR)."""
    pairs = ((hit, alarm), (1 - alarm, 1 - hit))
    return max((math.log((p - delta) / q) for p, q in pairs if p > delta and q > 0), default=0.0)


def _gaussian(hit, alarm, delta):
    """ε at δ of the smallest μ that has these rates."""
    mu = norm.ppf(hit) - norm.ppf(alarm) if hit > 0 and alarm < 1 else 0.0
    if not mu > 0.01:
        return 0.0
    if gaussian_log_delta(0.0, 1 / mu) <= math.log(delta):
        return 0.0
    return float(brentq(lambda eps: gaussian_log_delta(eps, 1 / mu) - math.log(delta), 0.0, 1e4))
