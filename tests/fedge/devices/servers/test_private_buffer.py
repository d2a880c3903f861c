"""FedBuff with noise on its buffers: sensitivity, noise, and what is spent, against other accountants."""

import io
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from small_data import nine_users
from virtual_world import carried_out, config_of, outcome, stopped_and_gone_on

from fedge import simulate
from fedge.config.sections.privacy import PrivacyConfig
from fedge.devices.servers.arrivals import Arrival, Memory
from fedge.devices.servers.private_buffer import PrivateSum, private_sum, releases_of
from fedge.devices.servers.rules import fedbuff
from fedge.devices.servers.vectors import Layout
from fedge.privacy.account import Account

C = 0.5
NUMBERS = st.floats(-1e3, 1e3, width=32)
VECTORS = st.lists(NUMBERS, min_size=3, max_size=3).map(lambda found: np.array(found, np.float32))


def memory_of(noise=0.0, devices=8, leaf=0, seed=3):
    config = PrivacyConfig(kind="server-fixed", clip_norm=C, noise_multiplier=noise)
    return Memory(devices, private=PrivateSum(config, seed, leaf, devices))


def after(arrivals, memory, model, **arguments):
    """The model once a buffer has all these arrivals."""
    for arrival in arrivals:
        found = fedbuff(model, memory, arrival, buffer=len(arrivals), **arguments)
    return found


def test_a_buffer_by_hand():
    """C = ½: (3, 4) is clipped to a tenth, (0.3, 0) is not; the second has τ = 3, so s = ½; η / K = 1."""
    w, old = np.zeros(2), np.array([1.0, 1.0])
    arrivals = [Arrival(0, 0, w, np.array([3.0, 4.0])), Arrival(1, 3, old, np.array([1.3, 1.0]))]
    found = after(arrivals, memory_of(), w, lr=2.0)
    assert found == pytest.approx([2 / 2 * (0.3 + 0.15), 2 / 2 * 0.4])


def test_noise_is_on_what_devices_send_alone():
    """The numbers of entries that stay at devices are those of the model, to the bit."""
    layout = Layout({"kept": np.ones((2, 2), np.float32), "step": np.zeros(1, np.int64), "sent": np.ones(3)})
    sent = layout.places({"sent", "step"})
    assert sent.tolist() == [False] * 4 + [True] * 3
    config = PrivacyConfig(kind="server-fixed", clip_norm=C, noise_multiplier=1.0)
    w, memory = np.ones(7), Memory(8, private=PrivateSum(config, 3, 0, 8, sent))
    found = after([Arrival(0, 0, w, w), Arrival(1, 0, w, w)], memory, w)
    assert (found == 1).tolist() == (~sent).tolist()


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 9), VECTORS, VECTORS, st.floats(0.01, 1.0)),
        min_size=1, max_size=8,
    ),
    VECTORS, st.sampled_from(["constant", "polynomial", "hinge", "cosine"]), st.sampled_from([0.3, 1.0, 2.0]),
)  # fmt: skip
def test_one_device_moves_the_model_by_at_most_what_is_claimed(arrivals, model, staleness, lr):
    """η m C / K, whatever is sent, by whom, how stale, from which model, how often it is in the buffer."""
    made = [Arrival(who, tau, start, end, share=share) for who, tau, start, end, share in arrivals]
    of = {"staleness": staleness, "lr": lr}
    whole = after(made, memory_of(), model, **of)
    for device in {each.child for each in made}:
        without = [
            Arrival(each.child, each.staleness, each.start, each.start, share=each.share)
            if each.child == device
            else each
            for each in made
        ]
        moved = float(np.linalg.norm(whole - after(without, memory_of(), model, **of)))
        times = sum(each.child == device for each in made)
        assert moved <= lr * times * C / len(made) * (1 + 1e-6) + 1e-9 * np.abs(model).max()


def test_noise_is_as_much_as_is_claimed_and_each_buffer_has_its_own():
    """Std η z C / K, by chi-square over 60,000 draws with a false-alarm probability of 1e-9."""
    size, buffers = 20_000, 3
    w, memory = np.zeros(size), memory_of(noise=1.5)
    found = [after([Arrival(0, 0, w, w), Arrival(1, 2, w, w)], memory, w, lr=0.5) for _ in range(buffers)]
    draws = np.concatenate(found) / (0.5 * 1.5 * C / 2)
    low, high = chi2.ppf([5e-10, 1 - 5e-10], draws.size)
    assert low < float(draws @ draws) < high
    assert abs(np.corrcoef(found[0], found[1])[0, 1]) < 6 / math.sqrt(size)
    other = memory_of(noise=1.5, leaf=1)
    assert abs(np.corrcoef(found[0], after([Arrival(0, 0, w, w)], other, w))[0, 1]) < 6 / math.sqrt(size)


def test_devices_are_counted_by_the_squares_of_their_places():
    """Device 2 twice in one buffer and once in the next: 2² + 1² releases; device 0 has one."""
    w, memory = np.zeros(1), memory_of()
    after([Arrival(2, 0, w, w), Arrival(0, 0, w, w), Arrival(2, 0, w, w)], memory, w)
    after([Arrival(2, 0, w, w), Arrival(1, 0, w, w)], memory, w)
    assert memory.arrays["private-squares"].tolist() == [1, 1, 5, 0, 0, 0, 0, 0]
    assert releases_of([memory, memory_of()]) == 5
    assert releases_of([memory_of()]) == 0


PLACES = [
    [1],
    [2],
    [1, 1, 1, 1],
    [3, 1, 1],
    [1] * 40,
    [2, 1, 4, 1, 2],
]  # of a device in one buffer after another


def gaussian_delta(epsilon, mu):
    """δ(ε) of a Gaussian mechanism with shift μ, as the integral of its definition, by the trapezoid rule."""
    x = np.linspace(-40, 40 + mu, 2_000_001)
    with_it = np.exp(-((x - mu) ** 2) / 2) / math.sqrt(2 * math.pi)
    without = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return float(np.trapezoid(np.maximum(with_it - math.exp(epsilon) * without, 0), x))


@pytest.mark.parametrize("places", PLACES, ids=str)
@pytest.mark.parametrize("multiplier", [0.8, 2.0])
def test_epsilon_is_that_of_other_accountants(places, multiplier):
    """Composed loss distributions (dp-accounting, numerically), Rényi divergences, and the definition."""
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting import pld, rdp

    delta = 1e-5
    account = Account(PrivacyConfig(kind="server-fixed", noise_multiplier=multiplier, delta=delta), [(8, 8)])
    claimed = account.spent(sum(times**2 for times in places))
    by_losses = pld.PLDAccountant(value_discretization_interval=1e-3)
    by_renyi = rdp.RdpAccountant()
    for times in places:
        event = dp_accounting.GaussianDpEvent(multiplier / times)
        by_losses.compose(event)
        by_renyi.compose(event)
    assert claimed == pytest.approx(by_losses.get_epsilon(delta), rel=2e-3)
    assert claimed <= by_losses.get_epsilon(delta) * (1 + 1e-9)  # whose discretisation rounds up
    assert claimed <= by_renyi.get_epsilon(delta)
    mu = math.sqrt(sum(times**2 for times in places)) / multiplier
    assert gaussian_delta(claimed, mu) == pytest.approx(delta, rel=1e-3)


PRIVATE = {
    "asynchrony__rule_args": '{"buffer": 3}', "asynchrony__concurrency": 4, "train__model": "linear",
    "asynchrony__evaluate_every_s": 0.5, "privacy__kind": "server-fixed", "privacy__noise_multiplier": 0.5,
}  # fmt: skip


def test_who_fails_moves_nothing_but_its_own_terms():
    """A job that fails keeps its place: who is in which buffer, and when, is what it is without failures."""
    whole, _ = carried_out(config_of(**PRIVATE), 8)
    failed, _ = carried_out(config_of(**PRIVATE), 8, fails={(1, 1), (3, 1), (3, 2)})
    assert failed.ledger.total("failed") == 3
    assert failed.servers[0].number == whole.servers[0].number > 3
    for name in ("private-squares", "private-buffers"):
        one, two = (of.servers[0].memory.arrays[name] for of in (whole, failed))
        assert one.tolist() == two.tolist()


def test_the_same_bits_by_any_number_of_workers_and_counters_stay():
    found = [carried_out(config_of(**PRIVATE), 8, workers=workers) for workers in (1, 3)]
    assert outcome(*found[0]) == outcome(*found[1])
    procedure, _ = found[0]
    assert procedure.servers[0].version.counters["steps"] == 0  # no noise covers what devices have counted


@pytest.mark.parametrize("events", [5, 17, 30])
def test_one_that_goes_on_has_the_same_noise_and_the_same_account(events, tmp_path):
    config = config_of(**PRIVATE)
    whole, noted = carried_out(config, 8)
    procedure, after = stopped_and_gone_on(config, 8, events, tmp_path, workers=1)
    assert outcome(procedure, after) == outcome(whole, noted)
    assert [result.releases for result in after.results] == [
        result.releases for result in noted.results[len(noted.results) - len(after.results) :]
    ]


@pytest.mark.parametrize("kind", ["off", "local"])
def test_no_leaf_adds_noise_that_is_not_its_own(kind):
    assert private_sum(PrivacyConfig(kind=kind), 3, 0, 8) is None


RUN = {
    "report": False, "train.model": "linear", "train.local-epochs": 1, "seed": 5, "data.path": nine_users(),
    "scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False, "hierarchy.num-servers": 2,
    "num-server-rounds": 3, "clients": 36, "devices.pieces": 2, "asynchrony.rule": "fedbuff", "run-name": "",
    "asynchrony.rule-args": '{"buffer": 4}', "asynchrony.concurrency": 12, "asynchrony.evaluate-every-s": 1.0,
    "privacy.kind": "client-fixed", "privacy.noise-multiplier": 2.0,
}  # fmt: skip


@pytest.mark.whole_runs
def test_a_run_tells_what_was_spent(tmp_path):
    """ε of the column and of the last lines is that of the device in the most buffers of its leaf."""
    pytest.importorskip("dp_accounting")
    screen = io.StringIO()
    run = simulate({**RUN, "runs-dir": str(tmp_path)}, terminal=screen)
    spent = run.rounds["epsilon_spent"].to_list()
    assert 0 < spent[0] <= spent[1] <= spent[2]
    counts = [
        n
        for n in range(1, 99)
        if math.isclose(
            Account(PrivacyConfig(kind="client-fixed", noise_multiplier=2.0), [(18, 18)]).spent(n), spent[-1]
        )
    ]
    assert len(counts) == 1
    assert (
        f"epsilon {spent[-1]:.4g} at delta 1e-05 was spent in what counts as {counts[0]} update"
        in screen.getvalue()
    )
    assert "numbers of windows by which jobs take their time" in str(run.manifest["privacy"]["not_covered"])


@pytest.mark.whole_runs
def test_a_device_that_adds_its_own_noise_spends_with_all_that_it_sends(tmp_path):
    pytest.importorskip("dp_accounting")
    local = {
        "privacy.kind": "local",
        "privacy.epsilon": 4.0,
        "asynchrony.rule": "fedasync",
        "asynchrony.rule-args": "",
    }
    run = simulate({**RUN, **local, "runs-dir": str(tmp_path)}, terminal=io.StringIO())
    came = int((run.devices["updates"] + run.devices["stale"] + run.devices["failed"]).max())
    account = Account(PrivacyConfig(kind="local", epsilon=4.0), [(18, 18)])
    # one more where a device is about to send at the end
    assert run.rounds["epsilon_spent"][-1] in (account.spent(came), account.spent(came + 1))
