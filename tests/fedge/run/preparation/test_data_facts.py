"""Facts from owners' reports are those from windows on the server."""

from dataclasses import replace

import numpy as np
import pytest
from made_up import make_windows

from fedge.config.flat import from_run_config, to_run_config
from fedge.config.registers.option import ConfigError
from fedge.data.own_windows import share_of
from fedge.data.prepared import write_client_data
from fedge.data.scaling import ChannelSums, scale_of
from fedge.run.model_card import card_of
from fedge.run.preparation.data_facts import data_of_owners, facts_of_deal
from fedge.run.preparation.prepare import deal_data
from hhar.windows.window_file import save_windows

SEED, CLIENTS = 5, 6


@pytest.fixture
def both(tmp_path):
    """A deal of six users, and their owners' reports of the same."""
    rows = [
        (user, None, f"{label}-{session}", label)
        for user in "abcdef" for label in range(3) for session in range(5) for _ in range(2)
    ]  # fmt: skip
    windows = make_windows(rows, classes=3)
    x = np.random.default_rng(1).normal(size=(len(rows), 2, 8)).astype(np.float32)
    windows = replace(windows, x=x, channels=("u", "v"), about={"rate_hz": "50", "licence": "none"})
    path = save_windows(tmp_path / "six.npz", windows)

    def made(**changes):
        config = from_run_config({"data.path": str(path), "train.model": "linear", **changes})
        deal = deal_data(config, SEED, CLIENTS, None)
        told = {
            client: share_of(deal.windows, deal.partition, client, "six.npz", False).report
            for client in range(CLIENTS)
        }
        return config, deal, told

    return made


@pytest.mark.parametrize(
    "changes", [{}, {"scenario": "gain", "hierarchy.num-servers": 2}, {"partition.unseen-clients": 1}]
)
def test_owners_and_the_server_agree(tmp_path, both, changes):
    config, deal, told = both(**changes)
    shape = write_client_data(tmp_path / "data", deal.windows, deal.partition, True)
    data, known = data_of_owners(config, SEED, told, None, len(told)), facts_of_deal(config, deal)
    assert data.shape == shape
    assert (data.scale.mean, data.scale.std) == (shape.mean, shape.std)
    facts = data.facts
    for name in ("classes", "channels", "dtype", "clients_per_leaf", "windows"):
        assert getattr(facts, name) == getattr(known, name)
    assert [list(map(len, parts)) for parts in facts.partition.clients] == [
        list(map(len, parts)) for parts in known.partition.clients
    ]
    assert facts.partition.unseen_clients == known.partition.unseen_clients
    planted, wanted = facts.partition.scenario, known.partition.scenario
    assert (planted and planted.describe()) == (wanted and wanted.describe())
    blank = [replace(holding, user="", device="") for holding in known.holdings]
    assert list(facts.holdings) == blank  # the names of users stay with their owners
    assert card_of(config, facts, data.shape) == card_of(config, known, shape)
    assert facts.source.name == "6 owners (six.npz)"


def test_the_fingerprint_is_that_of_all_clients(both):
    config, _, told = both()
    before = data_of_owners(config, SEED, told, None, len(told)).facts.source.fingerprint
    other = {**told, 3: replace(told[3], fingerprint="0" * 64)}
    assert data_of_owners(config, SEED, told, None, len(told)).facts.source.fingerprint == before
    assert data_of_owners(config, SEED, other, None, len(other)).facts.source.fingerprint != before


def test_windows_of_another_kind_are_refused_by_name(both):
    config, _, told = both()
    for name, value, words in (
        ("classes", ("p", "q"), "the same classes, but partition 4 has"),
        ("channels", ("v", "u"), "the same channels, but partition 4"),
        ("input_shape", (2, 9), "the same input shape, but partition 4"),
        ("split_kind", "blocks", "the same split kind, but partition 4"),
        ("counts", {**told[4].counts, "val": (0, 0, 0)}, "partition 4 has no val windows"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            data_of_owners(config, SEED, {**told, 4: replace(told[4], **{name: value})}, None, len(told))
        assert "\n" not in str(caught.value)


def test_what_does_not_fit_the_configuration_is_refused(both):
    for changes, words in (
        ({"clients": 9}, "clients must be the number of SuperNodes"),
        ({"hierarchy.clients-per-server": "2,2,1"}, "must add up"),
    ):
        _, _, told = both()
        with pytest.raises(ConfigError, match=words):
            data_of_owners(
                from_run_config({"data.path": "synthetic", "train.model": "linear", **changes}),
                SEED,
                told,
                None,
                len(told),
            )


def test_a_lying_owner_scales_nobody_elses_windows(both):
    """A mean of 1e3, 1e17 or a deviation of 1e15: the others' scale is what they tell themselves."""
    config, _, told = both()
    rest = [told[client].sums for client in told if client != 4]
    for lie in (
        ChannelSums(told[4].sums.count, (1e3, 0.0), told[4].sums.spread),
        ChannelSums(told[4].sums.count, (1e17, 1e17), told[4].sums.spread),
        ChannelSums(told[4].sums.count, told[4].sums.mean, (told[4].sums.count * 1e30, 1.0)),
    ):
        data = data_of_owners(config, SEED, {**told, 4: replace(told[4], sums=lie)}, None, len(told))
        assert data.scale == scale_of(rest)
        assert list(data.facts.left_out) == [4]
        assert "channel 'u'" in data.facts.left_out[4]
    assert data_of_owners(config, SEED, told, None, len(told)).facts.left_out == {}
    counts = {client: one.sums.count for client, one in told.items()}
    lies = {
        1: ChannelSums(counts[1], (1e9, 0.0), told[1].sums.spread),
        3: ChannelSums(counts[3], (0.0, 1e9), told[3].sums.spread),
        5: ChannelSums(10**14, told[5].sums.mean, (0.0, 0.0)),
    }
    half = told | {client: replace(told[client], sums=lie) for client, lie in lies.items()}
    with pytest.raises(ConfigError, match="units that most clients share"):
        data_of_owners(config, SEED, half, None, len(half))


@pytest.mark.parametrize("client", range(CLIENTS))
@pytest.mark.parametrize(
    "about", [{}, {"rate_hz": "1e9", "licence": "none"}, {"licence": "none", "rate_hz": "50"},
              {"cast": "<b>"}, {"rate_hz": "50", "licence": "none", "cast": "x" * 19_000}], ids=str,
)  # fmt: skip
def test_no_single_owner_says_what_the_data_of_all_are(both, client, about):
    """Whichever it is: facts and models' cards are those of the others' words, in their order."""
    config, _, told = both()
    honest = data_of_owners(config, SEED, told, None, len(told))
    told[client] = replace(told[client], about=about)
    found = data_of_owners(config, SEED, told, None, len(told))
    assert list(found.facts.about.items()) == [("rate_hz", "50"), ("licence", "none")]
    assert str(card_of(config, found.facts, found.shape)) == str(card_of(config, honest.facts, honest.shape))


def test_what_half_of_the_owners_say_is_not_said_of_all(both):
    config, _, told = both()
    odd = {client: replace(one, about={"rate_hz": "9"}) for client, one in told.items() if client < 3}
    assert data_of_owners(config, SEED, {**told, **odd}, None, len(told)).facts.about == {}


def test_a_run_may_begin_without_some_owners(both):
    """Client 4 of 6 tells nothing: it has no windows, and the scale is that of the others."""
    config, _, told = both()
    rest = {client: one for client, one in told.items() if client != 4}
    facts = data_of_owners(config, SEED, rest, None, 6).facts
    assert [len(parts[0]) for parts in facts.partition.clients] == [
        sum(told[client].counts["train"]) if client != 4 else 0 for client in range(6)
    ]
    assert data_of_owners(config, SEED, rest, None, 6).scale == scale_of([one.sums for one in rest.values()])
    first = {0: told[0]}
    two = from_run_config({**to_run_config(config), "hierarchy.num-servers": 2})
    with pytest.raises(ConfigError, match=r"leaf 1 has none \(partition 3 to 5\)"):
        data_of_owners(two, SEED, first, None, 6)
