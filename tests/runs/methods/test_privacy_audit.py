"""How much privacy loss an attack proves, beside how much is claimed: for each of the five kinds of privacy.

`-m soak` takes 10,000 releases a world and prints the figures of docs/privacy.md; a sample runs with all.
"""

import pytest
from membership import DELTA, KINDS, buffer_scores, config_of, proven, scores

from fedge.client import privacy as at_client
from fedge.devices.servers import private_buffer
from fedge.leaf.strategies import private_mean
from fedge.privacy.account import Account

DAILY, ROUNDS = 600, 4


def claimed(kind, rounds):
    return Account(config_of(kind).privacy, [(64, 64)]).spent(rounds)


def bounds(kind, trials, rounds=1):
    return proven(scores(kind, True, trials, rounds), scores(kind, False, trials, rounds), DELTA)


def no_noise(monkeypatch):
    scaled_noise(monkeypatch, 0.0)


def half_the_noise(monkeypatch):
    scaled_noise(monkeypatch, 0.5)


def scaled_noise(monkeypatch, factor):
    """As a wrong sensitivity, a forgotten factor or a switched-off line would do."""
    real_mean, real_std = private_mean.released_mean, at_client.local_noise_std

    def released(model, states, clip_norm, asked, noise_std, rng, sent=None):
        return real_mean(model, states, clip_norm, asked, noise_std * factor, rng, sent)

    monkeypatch.setattr(private_mean, "released_mean", released)
    monkeypatch.setattr(at_client, "local_noise_std", lambda config: real_std(config) * factor)


def no_clipping(monkeypatch):
    real = private_mean.released_mean

    def released(model, states, clip_norm, asked, noise_std, rng, sent=None):
        return real(model, states, 1e30, asked, noise_std, rng, sent)

    monkeypatch.setattr(private_mean, "released_mean", released)
    monkeypatch.setattr(at_client, "clipped", lambda start, end, norm: (dict(end), True))


DEFECTS = (no_noise, half_the_noise, no_clipping)


@pytest.mark.parametrize("kind", KINDS)
def test_no_more_is_proven_than_is_claimed(kind):
    found = bounds(kind, DAILY)
    assert max(found) <= claimed(kind, 1)
    assert found[1] > 0.25 * claimed(kind, 1), "the attack has lost its power"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_planted_defect_is_caught(kind, defect, monkeypatch):
    defect(monkeypatch)
    assert max(bounds(kind, DAILY // 2)) > claimed(kind, 1)


def test_the_privacy_loss_of_all_rounds_together_is_what_is_counted():
    """Of four leaf rounds that the adversary sees, one kind of each sort; more in the soak test."""
    for kind in ("client-adaptive", "local"):
        found = bounds(kind, DAILY // 2, ROUNDS)
        assert max(found) <= claimed(kind, ROUNDS)
        assert found[1] > claimed(kind, 1), "what four rounds prove is more than one round's"


PLACES = ((1,), (2, 1, 1))  # of the canary in one buffer of FedBuff after another


def of_buffers(places, trials):
    with_canary, without = (buffer_scores(world, trials, places) for world in (True, False))
    return proven(with_canary, without, DELTA), claimed("server-fixed", sum(count**2 for count in places))


@pytest.mark.parametrize("places", PLACES, ids=str)
def test_buffers_prove_no_more_than_is_claimed(places):
    """A device twice in a buffer counts as four releases: by places alone it would be claimed too little."""
    found, most = of_buffers(places, 2 * DAILY)
    assert max(found) <= most
    assert found[1] > 0.5 * most
    if len(places) > 1:
        assert found[1] > claimed("server-fixed", 1)


def test_a_buffer_with_half_the_noise_is_caught(monkeypatch):
    real = private_buffer.normals

    class Half:
        def __init__(self, *where):
            self.real = real(*where)

        def standard_normal(self, size):
            return 0.5 * self.real.standard_normal(size)

    monkeypatch.setattr(private_buffer, "normals", Half)
    found, most = of_buffers((1,), DAILY)
    assert max(found) > most


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_buffers_prove_no_more():
    """Prints the lines of docs/privacy.md on FedBuff."""
    for places in PLACES:
        found, most = of_buffers(places, 10_000)
        print(f"| FedBuff, places {places} | {most:.3f} | {found[0]:.3f} | {found[1]:.3f} |", flush=True)
        assert max(found) <= most


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_releases_prove_no_more(monkeypatch):
    """Prints the figures of docs/privacy.md."""
    trials = 10_000
    for kind in KINDS:
        for rounds in (1, ROUNDS):
            number = trials // rounds
            found, most = bounds(kind, number, rounds), claimed(kind, rounds)
            print(f"| `{kind}` | {rounds} | {most:.3f} | {found[0]:.3f} | {found[1]:.3f} |", flush=True)
            assert max(found) <= most
        for defect in DEFECTS:
            with monkeypatch.context() as planted:
                defect(planted)
                found = bounds(kind, trials // 4)
            print(f"|   {defect.__name__} | 1 | {claimed(kind, 1):.3f} | {found[0]:.3f} | {found[1]:.3f} |")
            assert max(found) > claimed(kind, 1)
