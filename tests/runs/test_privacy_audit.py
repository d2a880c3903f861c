"""How much privacy loss an attack proves, beside how much is claimed: for each of the five kinds of privacy.

`-m soak` takes 10,000 releases a world and prints the table of docs/privacy.md; a sample runs with all tests.
"""

import pytest
from membership import DELTA, KINDS, config_of, proven, scores

from fedge.client import privacy as at_client
from fedge.leaf import private_mean
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

    def released(model, states, clip_norm, asked, noise_std, rng):
        return real_mean(model, states, clip_norm, asked, noise_std * factor, rng)

    monkeypatch.setattr(private_mean, "released_mean", released)
    monkeypatch.setattr(at_client, "local_noise_std", lambda config: real_std(config) * factor)


def no_clipping(monkeypatch):
    real = private_mean.released_mean

    def released(model, states, clip_norm, asked, noise_std, rng):
        return real(model, states, 1e30, asked, noise_std, rng)

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


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_releases_prove_no_more(monkeypatch):
    """Prints the table of docs/privacy.md."""
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
