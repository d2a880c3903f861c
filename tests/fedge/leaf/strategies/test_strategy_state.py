import copy
import json
from fractions import Fraction

import numpy as np
import pytest
import torch
from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedYogi,
)

from fedge.config.sections.privacy import PrivacyConfig
from fedge.leaf.strategies.private_mean import PrivateMean
from fedge.leaf.strategies.strategy_state import (
    contents_of,
    numbers_of,
    refuse_incompatible_state,
    restore_strategy,
    states_of,
    unsaved_attribute,
)
from fedge.states.records import from_record, to_record

STRATEGIES = {
    "fedavg": lambda: FedAvg(),
    "fedadam": lambda: FedAdam(eta=0.1),
    "fedyogi": lambda: FedYogi(eta=0.1),
    "fedadagrad": lambda: FedAdagrad(eta=0.1),
    "fedavgm": lambda: FedAvgM(server_momentum=0.9),
    "adaptive clipping": lambda: DifferentialPrivacyServerSideAdaptiveClipping(
        FedAvgM(server_momentum=0.9), noise_multiplier=0.0, num_sampled_clients=2, clipped_count_stddev=0.0
    ),
}


def aggregate(strategy, round_):
    """Let the strategy see one round of two clients, from a model that changes from round to round."""
    rng = np.random.default_rng(round_)
    model = {"z": rng.normal(size=(2, 3)).astype(np.float32), "a": rng.normal(size=2).astype(np.float32)}
    for holder in (strategy, getattr(strategy, "strategy", strategy)):
        if isinstance(holder, (FedAdam, FedYogi, FedAdagrad)):
            holder.current_arrays = dict(model)
        else:
            holder.current_arrays = to_record(model)
    replies = []
    for client in (1, 2):
        arrays = {name: array + 0.1 * client * round_ for name, array in model.items()}
        content = {"arrays": to_record(arrays), "metrics": MetricRecord({"num-examples": client})}
        replies.append(Message(RecordDict(content), 0, "train"))
    combined, _ = strategy.aggregate_train(round_, replies)
    return {name: (array.dtype, array.tobytes()) for name, array in from_record(combined).items()}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_goes_on_where_another_was(name):
    """Two rounds in one, what it keeps through JSON and arrays to a fresh one, then two rounds in both."""
    first, second = STRATEGIES[name](), STRATEGIES[name]()
    for round_ in (1, 2):
        aggregate(first, round_)
    states = {n: {e: a.copy() for e, a in state.items()} for n, state in states_of(first).items()}
    restore_strategy(second, states, json.loads(json.dumps(numbers_of(first))))
    for round_ in (3, 4):
        assert aggregate(first, round_) == aggregate(second, round_)


def test_what_is_kept_is_found():
    kept = {}
    for name, make in STRATEGIES.items():
        strategy = make()
        assert states_of(strategy) == {}
        aggregate(strategy, 1)
        kept[name] = sorted(states_of(strategy))
    assert kept["fedavg"] == []
    assert kept["fedadam"] == kept["fedyogi"] == kept["fedadagrad"] == ["m_t", "v_t"]
    assert kept["fedavgm"] == ["momentum_vector[]"]
    assert "strategy.momentum_vector[]" in kept["adaptive clipping"]


def test_a_norm_that_follows_the_updates_is_kept():
    strategy = STRATEGIES["adaptive clipping"]()
    before = strategy.clipping_norm
    aggregate(strategy, 1)
    other = STRATEGIES["adaptive clipping"]()
    restore_strategy(other, states_of(strategy), numbers_of(strategy))
    assert other.clipping_norm == strategy.clipping_norm != before
    assert type(other.clipping_norm) is type(strategy.clipping_norm)


class Remembers(FedAvg):
    """A user's: `kept` grows from round to round by `grow`, and shifts what the mean is."""

    def __init__(self, first, grow, shift):
        super().__init__()
        self.kept, self.grow, self.shift = first, grow, shift

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.kept = self.grow(self.kept, arrays)
        by = np.float32(self.shift(self.kept))
        return to_record({name: a + by for name, a in from_record(arrays).items()}), metrics


def in_place(kept, arrays):
    """As strategies do that save memory: the kept arrays are written to."""
    if not isinstance(kept, np.ndarray):
        for name, array in from_record(arrays).items():
            kept.setdefault(name, np.zeros_like(array))
            kept[name] += array
        return kept
    kept += 1
    return kept


KEPT = {
    "an array": (np.zeros(5), in_place, lambda k: k[0]),
    "a matrix of another layout": (np.zeros((2, 3), order="F"), in_place, lambda k: k[1, 2]),
    "an array without axes": (np.array(1.0), lambda k, a: k * 0.5, float),
    "a scalar": (np.float32(1), lambda k, a: k * np.float32(0.5), float),
    "arrays by name, in place": ({}, in_place, lambda k: k["a"][0]),
    "arrays in a list": ([], lambda k, a: [*k, np.ones(2)], len),
    "a record": (None, lambda k, a: a, lambda k: from_record(k)["a"][0]),
    "a list of numbers": ([], lambda k, a: [*k, 0.5], len),
    "numbers by name": ({}, lambda k, a: {**k, f"round {len(k)}": 0.25}, lambda k: sum(k.values())),
    "lists in a table": (
        {"past": []},
        lambda k, a: {"past": [*k["past"], None, [1, "x"]]},
        lambda k: len(k["past"]),
    ),
    "a text": ("", lambda k, a: k + "x", len),
    "a whole number": (0, lambda k, a: k + 1, float),
    "truth": (False, lambda k, a: not k, float),
    "infinity at first": (float("inf"), lambda k, a: min(k, 2.0) * 0.5, float),
}
LOST = {
    "a generator": (np.random.default_rng(0), lambda k, a: [k.random(), k][1], lambda k: k.random()),
    "a tuple": ((), lambda k, a: (*k, 1.0), len),
    "a set": (set(), lambda k, a: k | {len(k)}, len),
    "numbers by number": ({}, lambda k, a: {**k, len(k): 0.25}, len),
    "arrays by number": ({}, lambda k, a: {**k, len(k): np.ones(2)}, len),
    "a tensor": (torch.zeros(2), lambda k, a: k + 1, lambda k: float(k[0])),
    "an object": (None, lambda k, a: Fraction(1, 3), float),
    "NaN in a list": ([], lambda k, a: [*k, float("nan")], len),
}


@pytest.mark.parametrize("kind", KEPT)
def test_whatever_a_strategy_of_a_user_remembers_goes_on(kind):
    """Through JSON and arrays that nobody may write to, as a checkpoint and a leaf server give them."""
    first, second = (Remembers(*copy.deepcopy(KEPT[kind])) for _ in range(2))
    before = contents_of(first)
    for round_ in (1, 2):
        aggregate(first, round_)
    assert unsaved_attribute(first, before) == ""
    states = {n: {e: np.array(a) for e, a in state.items()} for n, state in states_of(first).items()}
    for array in (array for state in states.values() for array in state.values()):
        array.flags.writeable = False
    numbers = json.loads(json.dumps(numbers_of(first)))
    refuse_incompatible_state(second, states, numbers, {"z": np.ones((2, 3)), "a": np.ones(2)})
    restore_strategy(second, states, numbers)
    for round_ in (3, 4):
        assert aggregate(first, round_) == aggregate(second, round_)


@pytest.mark.parametrize("kind", LOST)
def test_what_no_checkpoint_holds_is_found(kind):
    strategy = Remembers(*copy.deepcopy(LOST[kind]))
    before = contents_of(strategy)
    aggregate(strategy, 1)
    assert unsaved_attribute(strategy, before) == "kept"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 3.0), (1.0, "x"), ([], "x"), ("", ["x"]), ([1.0], [float("nan")]), ("", "x" * 2**20),
        ({}, {"x": float("inf")}), (1.0, [1.0]), ([], {}),
    ],
)  # fmt: skip
def test_text_and_lists_of_others_stay_what_they_were(before, after):
    strategy = Remembers(before, None, None)
    with pytest.raises(ValueError, match="'kept'"):
        refuse_incompatible_state(strategy, {}, {**numbers_of(strategy), "kept": after}, {})


@pytest.mark.parametrize(
    ("name", "state", "telling"),
    [
        ("__class__.min_train_nodes()", {"": np.array(5)}, "nothing that a strategy keeps"),
        ("aggregate_train()", {"": np.array(5)}, "nothing that a strategy keeps"),
        ("no_such.m_t", {"z": np.ones(2)}, "nothing that a strategy keeps"),
        ("m_t", {"z": np.full(2, np.nan)}, "not finite"),
        ("m_t", {"z": np.ones(7)}, "another form"),
        ("eta", {"z": np.ones(2)}, "another form"),
        ("history[]", {"1": np.ones(2)}, "another form"),
    ],
)
def test_what_a_strategy_cannot_keep_is_refused_and_sets_nothing(name, state, telling):
    strategy = FedAdam(eta=0.1)
    before = dict(vars(strategy)), FedAdam.aggregate_train, vars(FedAvg).copy()
    with pytest.raises(ValueError, match=telling):
        refuse_incompatible_state(strategy, {name: state}, numbers_of(strategy), {"z": np.ones(2)})
    if "nothing" in telling:
        with pytest.raises(ValueError, match=telling):
            restore_strategy(strategy, {name: state}, {})
    assert (dict(vars(strategy)), FedAdam.aggregate_train, vars(FedAvg).copy()) == before


@pytest.mark.parametrize("value", [None, "x", float("nan"), float("inf"), True, [1.0], 1e300])
def test_a_number_that_a_strategy_cannot_keep_is_refused(value):
    strategy = FedAdam(eta=0.1)
    numbers = numbers_of(strategy)
    refuse_incompatible_state(strategy, {}, numbers, {})
    with pytest.raises(ValueError, match="'eta'"):
        refuse_incompatible_state(strategy, {}, {**numbers, "eta": value}, {})
    del numbers["eta"]
    with pytest.raises(ValueError, match="'eta' of FedAdam is missing"):
        refuse_incompatible_state(strategy, {}, numbers, {})


@pytest.mark.parametrize("name", ["fedavg", "fedadam", "adaptive clipping"])
@pytest.mark.parametrize("number", [2**63, 10**400, 3, -1, float("nan"), float("inf"), True])
def test_nobody_makes_a_strategy_wait_for_more_nodes(name, number):
    """One that does never begins its next round: a forged checkpoint, or a leaf server that lies."""
    strategy = STRATEGIES[name]()
    told = numbers_of(strategy)
    settings = [at for at in told if at.rpartition(".")[2] == "min_available_nodes"]
    assert len(settings) == 1
    with pytest.raises(ValueError, match="min_available_nodes"):
        restore_strategy(strategy, {}, {**told, settings[0]: number})
    with pytest.raises(ValueError, match="min_available_nodes"):
        refuse_incompatible_state(strategy, states_of(strategy), {**told, settings[0]: number}, {})
    restore_strategy(strategy, {}, told)


@pytest.mark.parametrize("name", STRATEGIES)
def test_settings_of_a_strategy_that_comes_with_flower_are_those_it_was_made_with(name):
    """A forged checkpoint, or a leaf server that lies, does not choose the step of a server."""
    strategy = STRATEGIES[name]()
    aggregate(strategy, 1)
    told, states = numbers_of(strategy), states_of(strategy)
    model = {"z": np.ones((2, 3), np.float32), "a": np.ones(2, np.float32)}
    refuse_incompatible_state(STRATEGIES[name](), states, told, model)
    for setting in ("eta", "tau", "beta_1", "server_momentum", "server_learning_rate", "noise_multiplier"):
        for at in (key for key in told if key.rpartition(".")[2] == setting):
            with pytest.raises(ValueError, match=f"'{at}' must be .*, but is -5"):
                refuse_incompatible_state(STRATEGIES[name](), states, {**told, at: -5}, model)
    for at, state in states.items():
        with pytest.raises(ValueError, match=f"'{at[:3]}.*zz' is nothing that"):
            refuse_incompatible_state(
                STRATEGIES[name](), {**states, f"{at.rstrip('[]')}zz": state}, told, model
            )


class Decays(FedAdam):
    """Its step falls with the rounds, and something new comes with them."""

    def aggregate_train(self, server_round, replies):
        self.eta, self.seen = self.eta / 2, server_round
        return super().aggregate_train(server_round, replies)


def test_settings_of_a_strategy_of_a_user_may_change_with_rounds():
    strategy, fresh = Decays(eta=0.1), Decays(eta=0.1)
    aggregate(strategy, 1)
    model = {"z": np.ones((2, 3), np.float32), "a": np.ones(2, np.float32)}
    refuse_incompatible_state(fresh, states_of(strategy), numbers_of(strategy), model)
    restore_strategy(fresh, states_of(strategy), numbers_of(strategy))
    assert (fresh.eta, fresh.seen) == (0.05, 1)


def test_moments_are_floats():
    strategy = FedAdam(eta=0.1)
    aggregate(strategy, 1)
    states = states_of(strategy)
    model = {"z": np.ones((2, 3), np.float32), "a": np.ones(2, np.float32)}
    whole = {**states, "m_t": {name: array.astype(np.int16) for name, array in states["m_t"].items()}}
    with pytest.raises(ValueError, match="'m_t' and 'v_t' must both be floats"):
        refuse_incompatible_state(FedAdam(eta=0.1), whole, numbers_of(strategy), model)


@pytest.mark.parametrize("make", [FedAdam, FedYogi, FedAdagrad])
def test_means_of_squares_are_not_negative(make):
    """A root of them is taken in the next round, in which the leaf would not move."""
    strategy = make(eta=0.1)
    aggregate(strategy, 1)
    states = states_of(strategy)
    states["v_t"]["a"][0] = -1e-9
    model = {"z": np.ones((2, 3), np.float32), "a": np.ones(2, np.float32)}
    with pytest.raises(ValueError, match="must not be negative"):
        refuse_incompatible_state(make(eta=0.1), states, numbers_of(strategy), model)


@pytest.mark.parametrize("norm", [0.0, -1.0, 1e40, 1e-40, float("nan"), 3.0])
@pytest.mark.parametrize("kind", ["server-fixed", "client-fixed", "server-adaptive", "client-adaptive"])
def test_a_clipping_norm_is_one_that_rounds_can_make(kind, norm):
    """A forged checkpoint, or a leaf server that lies, chooses neither what is clipped nor how much noise."""
    strategy = PrivateMean(PrivacyConfig(kind=kind, noise_multiplier=0.2), 3)
    told = {**numbers_of(strategy), "clip_norm": norm}
    if norm == 3.0 and kind.endswith("adaptive"):
        refuse_incompatible_state(strategy, {}, told, {})
        restore_strategy(strategy, {}, told)
        assert strategy.clip_norm == norm
        return
    for refused in (refuse_incompatible_state, lambda *given: restore_strategy(*given[:3])):
        with pytest.raises(ValueError, match=r"'clip_norm' (cannot be|is not finite)"):
            refused(strategy, {}, told, {})
    assert strategy.clip_norm == 1.0
