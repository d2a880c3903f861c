"""SCAFFOLD against numbers: one round by hand, and nine quadratics whose optimum is known."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fedge.training import scaffold

CLIENTS = 9
LR = 0.05


class Quadratics:
    """Client i minimises f_i(y) = ½ (y − a_i)ᵀ diag(h_i) (y − a_i); the optimum of Σ w_i f_i is known."""

    def __init__(self, weights: Sequence[float] = (1.0,) * CLIENTS) -> None:
        rng = np.random.default_rng(0)
        self.curvature = rng.uniform(0.5, 2.0, (CLIENTS, 4))
        self.centre = rng.normal(size=(CLIENTS, 4))
        self.weights = np.array(weights)
        w = self.weights[:, None]
        self.optimum = (w * self.curvature * self.centre).sum(0) / (w * self.curvature).sum(0)

    def gradient(self, client: int, y: np.ndarray) -> np.ndarray:
        return self.curvature[client] * (y - self.centre[client])


def run(
    problem: Quadratics,
    rounds: int,
    steps: Sequence[int] = (10,) * CLIENTS,
    lr: float = LR,
    momentum: float = 0.0,
    participants: int = CLIENTS,
    controls: bool = True,
    steps_believed: int | None = None,
    after_round: Callable[[dict, list[dict]], None] = lambda c, c_i: None,
) -> float:
    """Distance to the optimum after so many rounds of SCAFFOLD (or FedAvg, without controls)."""
    rng = np.random.default_rng(1)
    x = {"w": np.zeros(4)}
    server = scaffold.zero_control(x)
    clients = [scaffold.zero_control(x) for _ in range(CLIENTS)]
    for _ in range(rounds):
        chosen = sorted(rng.choice(CLIENTS, participants, replace=False))
        weights = problem.weights[chosen]
        ends, deltas = [], []
        for i in chosen:
            y, velocity = x["w"].copy(), np.zeros(4)
            correction = scaffold.correction(server, clients[i])["w"] if controls else 0.0
            for _ in range(steps[i]):
                velocity = momentum * velocity + problem.gradient(i, y) + correction
                y = y - lr * velocity
            ends.append(y)
            if controls:
                believed = steps_believed or steps[i]
                deltas.append(scaffold.control_delta(server, x, {"w": y}, believed, lr, momentum))
                clients[i] = scaffold.updated_client_control(clients[i], deltas[-1])
        if controls:
            server = scaffold.updated_server_control(server, deltas, list(weights), problem.weights.sum())
        x = {"w": np.average(ends, axis=0, weights=weights)}
        after_round(server, clients)
    return float(np.abs(x["w"] - problem.optimum).max())


def test_fedavg_stalls_where_scaffold_converges() -> None:
    problem = Quadratics()
    assert run(problem, 300, controls=False) > 1e-2
    assert run(problem, 600, controls=False) > 1e-2
    assert run(problem, 300) < 1e-10


def test_one_third_participation() -> None:
    assert run(Quadratics(), 1500, participants=3) < 1e-10


def test_unequal_step_counts() -> None:
    assert run(Quadratics(), 300, steps=[3 + 2 * i for i in range(CLIENTS)]) < 1e-10


def test_momentum_under_the_corrected_step() -> None:
    problem = Quadratics()
    assert run(problem, 400, lr=LR / 10, momentum=0.9) < 1e-10
    assert run(problem, 400, lr=LR / 10, momentum=0.9, controls=False) > 1e-3


def test_unequal_weights_reach_the_weighted_optimum() -> None:
    weighted = Quadratics(weights=[1, 5, 2, 8, 1, 3, 1, 1, 4])
    assert np.abs(weighted.optimum - Quadratics().optimum).max() > 0.05
    assert run(weighted, 300) < 1e-10
    assert run(weighted, 1500, participants=3) < 1e-10


def test_steps_are_optimiser_steps_not_epochs() -> None:
    """Ten steps are ten full-batch epochs; K = 1 makes the controls ten times too large: divergence."""
    assert run(Quadratics(), 30, steps_believed=1) > 1e3


@pytest.mark.parametrize("participants", [CLIENTS, 3])
def test_server_control_is_the_weighted_mean_of_all_client_controls(participants: int) -> None:
    problem = Quadratics(weights=[1, 5, 2, 8, 1, 3, 1, 1, 4])

    def check(server: dict, clients: list[dict]) -> None:
        mean = np.average([c["w"] for c in clients], axis=0, weights=problem.weights)
        np.testing.assert_allclose(server["w"], mean, rtol=0, atol=1e-12)

    run(problem, 200, participants=participants, after_round=check)


def test_one_round_by_hand() -> None:
    """c = 1, c_i = 3, x = 10, y = 4, K = 3, η = 0.5: c_i⁺ = 3 − 1 + 6 / 1.5 = 6, so Δc_i = 3; with m = 0.5:
    c_i⁺ = 2 + 6 / 3 = 4, so Δc_i = 1.

    Two of three clients, weights 1 and 2 of 4 in all: c⁺ = 1 + (1 · 3 + 2 · (−1)) / 4 = 1.25.
    """
    one = {"w": np.array([1.0])}
    three = {"w": np.array([3.0])}
    start = {"w": np.array([10.0], np.float32), "running_mean": np.array([7.0], np.float32)}
    end = {"w": np.array([4.0], np.float32), "running_mean": np.array([9.0], np.float32)}
    assert scaffold.correction(one, three) == {"w": np.array([-2.0])}
    delta = scaffold.control_delta(one, start, end, steps=3, lr=0.5)
    assert delta == {"w": np.array([3.0])}  # and no entry for the buffer
    assert scaffold.updated_client_control(three, delta) == {"w": np.array([6.0])}
    assert scaffold.control_delta(one, start, end, 3, 0.5, momentum=0.5)["w"] == 1.0
    deltas = [{"w": np.array([3.0])}, {"w": np.array([-1.0])}]
    assert scaffold.updated_server_control(one, deltas, [1, 2], 4) == {"w": np.array([1.25])}
    assert one == {"w": np.array([1.0])}


def test_equal_weights_are_the_paper_s_server_step() -> None:
    rng = np.random.default_rng(2)
    deltas = [{"w": rng.normal(size=5)} for _ in range(4)]
    c = {"w": rng.normal(size=5)}
    paper = c["w"] + np.mean([d["w"] for d in deltas], axis=0) * 4 / CLIENTS
    ours = scaffold.updated_server_control(c, deltas, [2.5] * 4, 2.5 * CLIENTS)["w"]
    np.testing.assert_allclose(ours, paper, rtol=1e-14)


def test_no_participant_leaves_the_server_control() -> None:
    assert scaffold.updated_server_control({"w": np.ones(1)}, [], [], 3.0) == {"w": np.ones(1)}


def test_zero_control_is_float64() -> None:
    zero = scaffold.zero_control({"w": np.ones((2, 3), np.float32)})
    assert zero["w"].dtype == np.float64
    assert zero["w"].shape == (2, 3)
    assert not zero["w"].any()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_values_are_errors_that_name_the_entry(bad: float) -> None:
    good, wrong = {"w": np.zeros(2)}, {"w": np.array([0.0, bad])}
    with pytest.raises(FloatingPointError, match="'w'"):
        scaffold.correction(good, wrong)
    with pytest.raises(FloatingPointError, match="'w'"):
        scaffold.control_delta(good, good, wrong, 1, 0.1)
    with pytest.raises(FloatingPointError, match="'w'"):
        scaffold.updated_server_control(good, [wrong], [1], 1)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"steps": 0}, "steps"),
        ({"lr": 0.0}, "lr"),
        ({"momentum": 1.0}, "momentum"),
        ({"end": {}}, "end has no entry 'w'"),
        ({"end": {"w": np.zeros(3)}}, "shape"),
        ({"server_control": {"v": np.zeros(2)}}, "start has no entry 'v'"),
    ],
)
def test_control_delta_refuses(change: dict, rule: str) -> None:
    zero = {"w": np.zeros(2)}
    arguments = {**dict.fromkeys(("server_control", "start", "end"), zero), "steps": 1, "lr": 0.1, **change}
    with pytest.raises(ValueError, match=rule):
        scaffold.control_delta(**arguments)


def test_client_control_refuses_another_shape() -> None:
    with pytest.raises(ValueError, match="shape"):
        scaffold.updated_client_control({"w": np.zeros(2)}, {"w": np.zeros(3)})


@pytest.mark.parametrize(
    ("weights", "total", "rule"),
    [([1, 1], 2, "2 weights"), ([-1], 1, "non-negative"), ([3], 2, "at most"), ([0], 0, "total")],
)
def test_server_control_refuses(weights: list, total: float, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        scaffold.updated_server_control({"w": np.zeros(2)}, [{"w": np.zeros(2)}], weights, total)


def test_a_leaf_s_drift_by_hand():
    """Steps 2 and 4 with weights 1 and 3 are 3.5 in the mean: 3.5 · 0.2 / (1 − 0.75) = 2.8.

    A leaf that went from 10 to 4 on a drift of 3, corrected by 0.5: d = 6 / 3 − 0.5 = 1.5. Of d = 1 and 5
    with weights 3 and 1 the mean is 2: u = 1 and −3, whose weighted sum is 0.
    """
    assert scaffold.drift_length([2, 4], [1, 3], 0.2, 0.75) == pytest.approx(2.8, rel=1e-12)
    start, end, correction = ({"w": np.array([value])} for value in (10.0, 4.0, 0.5))
    assert scaffold.leaf_control(start, end, 3.0, None, ["w"]) == {"w": np.array([2.0])}
    assert scaffold.leaf_control(start, end, 3.0, correction, ["w"]) == {"w": np.array([1.5])}
    corrections = scaffold.leaf_corrections([{"w": np.array([1.0])}, {"w": np.array([5.0])}], [3, 1])
    assert corrections == [{"w": np.array([1.0])}, {"w": np.array([-3.0])}]


@pytest.mark.parametrize(
    ("controls", "weights"), [(0, []), (1, [1, 1]), (2, [1]), (2, [0, 0]), (2, [1, float("inf")])]
)
def test_leaves_and_weights_that_do_not_fit_are_refused(controls, weights):
    with pytest.raises(ValueError, match=f"{controls} leaf controls do not fit the weights"):
        scaffold.leaf_corrections([{"w": np.zeros(2)}] * controls, weights)
    with pytest.raises(ValueError, match=f"{controls} step counts do not fit the weights"):
        scaffold.drift_length([1] * controls, weights, 0.1, 0.0)
