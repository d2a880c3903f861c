"""Releases of whole private runs, message by message: every number's noise, and the length of every update.

The attack of test_privacy_audit.py makes releases one by one, along one direction. Here clients and leaves of
a run make them, and each is looked at as an adversary sees it: training takes steps of nothing, so what a
client sends, or a leaf makes of it, is noise alone. It has the claimed deviation in every array, and nobody
has noise that somebody else has, or that it has had before.
"""

import io
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy.stats import chi2
from small_runs import small_config

from fedge.client.privacy import local_noise_std
from fedge.client_app import app as client_app
from fedge.config.flat import from_run_config
from fedge.config.registers.groupings import GROUPINGS
from fedge.config.registers.traits import NEVER_BY_THRESHOLD, NUMBERED
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.content import ARRAYS
from fedge.exchange.round_context import LEAF, PERSONAL, RoundContext
from fedge.exchange.train import TRAIN
from fedge.privacy.mechanism import count_std, update_multiplier
from fedge.run.run import run
from fedge.states.records import from_record

CLIENTS, LEAVES, CLIP, NOISE = 9, 3, 0.5, 0.2
OF_LEAF = CLIENTS // LEAVES
ROUNDS = 3  # leaf rounds of a global round, and of fine-tuning after it
KINDS = ("server-fixed", "server-adaptive", "client-fixed", "client-adaptive", "local")
FALSE_ALARM = 1e-9  # the seed is fixed
ALONE = {
    "scaffold.enabled": False, "train.model": "linear", "cluster.enabled": False, "gate.enabled": False,
    "privacy.clip-norm": CLIP, "privacy.noise-multiplier": NOISE, "privacy.clip-lr": 1e-12,
    "hierarchy.leaf-rounds": ROUNDS, "personal.leaf-rounds": ROUNDS, "personal.every": 1,
}  # fmt: skip
STILL = {"train.lr": 1e-12}
BUFFER = 2
CLOCK = {
    "hierarchy.leaf-rounds": 1, "personal.leaf-rounds": 0, "asynchrony.rule": "fedbuff",
    "asynchrony.rule-args.buffer": BUFFER, "asynchrony.end-versions": 8, "personal.every": 0,
    "hierarchy.num-servers": 1,
}  # fmt: skip


def messages_of(folder, kind, **changes):
    """Models between leaves and clients in a run: (client, leaf round, line) → model down, model up."""
    seen, twice = {}, []

    def app(message, context):
        reply = client_app(message, context)
        if message.metadata.message_type == TRAIN:
            where = RoundContext.from_message(message)
            down, up = (from_record(each.content.array_records[ARRAYS]) for each in (message, reply))
            client = context.node_config["partition-id"]
            key = client, where.leaf_round, where.line
            if key in seen:
                twice.append(key)
            seen[key] = down, up
        return reply

    config = small_config(folder, **{"privacy__kind": kind}) | ALONE | changes
    with InProcessGrid(app, CLIENTS, config, 1) as grid:
        outcome = run(grid, config, "inprocess", {}, lambda _: io.StringIO())
    assert outcome.status == "completed", outcome.reason
    assert twice == [], "their noise follows from these, and covers one update"
    return seen, from_run_config(config)


def moved(before, after):
    """Change of each array, float64."""
    return {name: after[name].astype(np.float64) - before[name] for name in before}


def releases_of(seen, kind):
    """Releases to whoever is not trusted, in turn: of clients, or of their leaves."""
    if kind == "local":
        return [moved(*each) for each in seen.values()]
    of_leaves = {}
    for (client, leaf_round, line), (down, _) in seen.items():
        of_leaves.setdefault((client // OF_LEAF, line), {})[leaf_round] = down
    return [
        moved(versions[one], versions[other])
        for (_, line), versions in of_leaves.items()
        for one, other in pairwise(sorted(versions))
        if one % ROUNDS  # a global round, and fine-tuning, begin anew from the cloud's model
    ]


def flat(release):
    return np.concatenate([array.ravel() for array in release.values()])


def assert_nobody_shares(releases):
    noises = [flat(each) for each in releases]
    limit = 6.2 / np.sqrt(noises[0].size)
    for one, other in combinations(noises, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < limit


def claimed_std(kind, config):
    """Deviation of the noise on each number, by the formulas of docs/privacy.md."""
    if kind == "local":
        return local_noise_std(config.privacy)
    adaptive = kind.endswith("adaptive")
    z = update_multiplier(NOISE, count_std(OF_LEAF, NOISE)) if adaptive else NOISE
    return z * CLIP / OF_LEAF


@pytest.mark.whole_runs
@pytest.mark.parametrize("kind", KINDS)
def test_every_number_of_every_release_has_noise_of_its_own(tmp_path, kind):
    seen, config = messages_of(tmp_path, kind, **STILL)
    assert {line for _, _, line in seen} == {LEAF, PERSONAL}
    releases = releases_of(seen, kind)
    assert len(releases) >= 15
    std = claimed_std(kind, config)
    for name in releases[0]:
        draws = np.concatenate([each[name].ravel() for each in releases]) / std
        low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], draws.size)
        assert low <= np.sum(draws**2) <= high, name
        assert abs(draws.mean()) <= 6.2 / np.sqrt(draws.size), name
    assert_nobody_shares(releases)


@pytest.mark.whole_runs
def test_no_device_sends_noise_that_it_has_sent_before(tmp_path):
    seen, _ = messages_of(tmp_path, "local", **STILL, **CLOCK)
    assert len(seen) > CLIENTS
    assert_nobody_shares(releases_of(seen, "local"))


@pytest.mark.whole_runs
def test_no_buffer_has_the_noise_of_another(tmp_path):
    """Versions of a server that has one noise for several buffers lie on a line, or in a plane."""
    seen, _ = messages_of(tmp_path, "server-fixed", **STILL, **CLOCK)
    versions = np.array(sorted({tuple(flat(down)) for down, _ in seen.values()}))
    assert len(versions) > 5
    apart = np.linalg.svd(versions[1:] - versions[0], compute_uv=False)
    assert apart.min() > NOISE * CLIP / BUFFER


@pytest.mark.whole_runs
@pytest.mark.parametrize("kind", KINDS)
def test_no_update_of_a_run_is_longer_than_the_norm(tmp_path, kind):
    """Steps are huge, noise is (nearly) none: all arrays of an update together have the norm at most."""
    without = {"privacy.noise-multiplier": 0.0, "privacy.epsilon": 1e12, "hierarchy.participation": "1"}
    seen, _ = messages_of(tmp_path, kind, **without, **{"train.lr": 5.0})
    ups = [np.linalg.norm(flat(moved(*each))) for each in seen.values()]
    assert (max(ups) > 1.1 * CLIP) == kind.startswith("server"), "the leaf clips, or each client"
    made = [np.linalg.norm(flat(each)) for each in releases_of(seen, kind)]
    assert CLIP * (1 - 1e-5) < max(made) <= CLIP * (1 + 1e-5)


GROUPED = {"personal.leaf-rounds": 0, "personal.every": 0, "cluster.enabled": True, "scenario": "gain"}
SECOND = {"tested-family"}  # ask for a second update where the first ones cannot be compared


@pytest.mark.whole_runs
@pytest.mark.parametrize("some", [{"hierarchy.participation": "2"}, {"partition.kind": "quantity"}])
@pytest.mark.parametrize("method", GROUPINGS.names)
def test_no_grouping_lets_a_client_use_its_noise_twice(tmp_path, method, some):
    """Some do not train in the first leaf round, or on fewer windows."""
    needs_count = GROUPINGS.has(method, NUMBERED) or GROUPINGS.has(method, NEVER_BY_THRESHOLD)
    more = {**GROUPED, "cluster.method": method, "cluster.tau": 1.01, **some}
    if needs_count:
        more["cluster.count"] = "2"
    if method in SECOND:
        with pytest.raises(AssertionError, match="a further update would have the noise of the first"):
            messages_of(tmp_path, "local", **STILL, **more)
    else:
        seen, _ = messages_of(tmp_path, "local", **STILL, **more)
        assert_nobody_shares(releases_of(seen, "local"))
