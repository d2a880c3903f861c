"""Schema of one reply, rule by rule and for whole classes of faults."""

import math
from dataclasses import replace

import numpy as np
import pytest
from any_states import states
from evaluations import classified
from flwr.app import Message, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from fedge.exchange.algorithm import ReplyForm
from fedge.exchange.evaluate import OWN, evaluate_messages, evaluate_reply, gain_sums
from fedge.exchange.round_context import RoundContext
from fedge.exchange.schema import (
    ReplyRejected,
    TrainTask,
    admit_evaluations,
    admit_train,
    check_differences,
    check_evaluations,
    check_form,
    check_train,
    check_values,
    not_finite_losses,
)
from fedge.exchange.train import TrainReply, train_messages, train_reply
from fedge.states.averaging import weighted_mean
from fedge.states.named_states import form_of
from fedge.states.records import to_record
from fedge.training.local import TrainResult

MODEL = {
    "head.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "norm.running_var": np.ones(3, np.float64),
    "norm.count": np.array(4, np.int64),
}


def reply(**entries):
    """The model with other entries."""
    return {**{name: array.copy() for name, array in MODEL.items()}, **entries}


TASK = TrainTask(MODEL, samples=10, epochs=2, batch_size=4, timeout_s=60.0, variances=("norm.running_var",))


def check(state=None, samples=5, steps=4, loss=0.5, seconds=1.0, task=TASK):
    """Check a reply of 5 windows: 2 epochs of ⌈5 / 4⌉ steps."""
    state = reply() if state is None else state
    check_train(TrainReply(state, samples, steps, loss, seconds, uplink_bytes=0), task)


def without(name):
    return {n: a for n, a in reply().items() if n != name}


# --- train replies ----------------------------------------------------------------------------------------


def test_what_the_leaf_asked_for_passes():
    check()
    check(samples=10, steps=6, loss=0.0, seconds=0.0)
    check(samples=4, steps=2, seconds=89.0)  # late, but nobody had noticed
    check(reply(**{"head.weight": np.full((2, 3), 1e16, np.float32)}))
    check(reply(**{"norm.count": np.array(8, np.int64), "norm.running_var": np.zeros(3)}))


@pytest.mark.parametrize(
    ("changes", "telling"),
    [
        ({"samples": 0}, "samples out of range (0, but 1 to 10 were given)"),
        ({"samples": 11}, "samples out of range (11, but 1 to 10 were given)"),
        ({"samples": -3}, "samples out of range (-3, but 1 to 10 were given)"),
        ({"samples": True}, "samples out of range (True, but 1 to 10 were given)"),
        ({"samples": 2.0}, "samples out of range (2.0, but 1 to 10 were given)"),
        ({"steps": 0}, "steps out of range (0, but 5 windows take 4)"),
        ({"steps": 1}, "steps out of range (1, but 5 windows take 4)"),
        ({"steps": 4.0}, "steps out of range (4.0, but 5 windows take 4)"),
        ({"steps": 5}, "steps out of range (5, but 5 windows take 4)"),
        ({"samples": 4}, "steps out of range (4, but 4 windows take 2)"),
        ({"loss": -0.1}, "loss out of range (-0.1, but a loss is 0 or more)"),
        ({"loss": -1e308}, "loss out of range (-1e+308, but a loss is 0 or more)"),
        ({"loss": 2e39}, "loss out of range (2e+39, but a loss is 0 or more)"),
        ({"seconds": -1.0}, "seconds out of range (-1.0, but there were 90)"),
        ({"seconds": math.nan}, "seconds out of range (nan, but there were 90)"),
        ({"seconds": 91}, "seconds out of range (91, but there were 90)"),
        (
            {"task": replace(TASK, says_clipped=True)},
            "other entries (whether the update was clipped is missing)",
        ),
        ({"loss": float("nan")}, "loss not finite (nan)"),
        ({"loss": float("inf")}, "loss not finite (inf)"),
        ({"state": without("norm.count")}, "other entries (norm.count)"),
        ({"state": reply(more=np.zeros(1))}, "other entries (more)"),
        ({"state": {}}, "other entries (head.weight, norm.count, norm.running_var)"),
        (
            {"state": reply(**{"head.weight": np.zeros((3, 2), np.float32)})},
            "other shape (entry 'head.weight': (3, 2) instead of (2, 3))",
        ),
        (
            {"state": reply(**{"norm.count": np.zeros((1,), np.int64)})},
            "other shape (entry 'norm.count': (1,) instead of ())",
        ),
        (
            {"state": reply(**{"head.weight": np.zeros((2, 3))})},
            "other dtype (entry 'head.weight': float64 instead of float32)",
        ),
        (
            {"state": reply(**{"head.weight": np.full((2, 3), np.nan, np.float32)})},
            "not finite (entry 'head.weight')",
        ),
        (
            {"state": reply(**{"head.weight": np.full((2, 3), -1e30, np.float32)})},
            "too large (entry 'head.weight': 1e+30)",
        ),
        (
            {"state": reply(**{"norm.running_var": np.array([1.0, -1e-9, 1.0])})},
            "variance out of range (entry 'norm.running_var': -1e-09)",
        ),
        (
            {"state": reply(**{"norm.count": np.array(3)})},
            "count out of range (entry 'norm.count' fell from 4 to 3 after 4 steps)",
        ),
        (
            {"state": reply(**{"norm.count": np.array(9)})},
            "count out of range (entry 'norm.count' after 4 steps)",
        ),
        (
            {"state": reply(**{"norm.count": np.array(-(2**63))})},
            "count out of range (entry 'norm.count' fell from 4 to -9223372036854775808 after 4 steps)",
        ),
    ],
)
def test_each_rule_by_hand(changes, telling):
    with pytest.raises(ReplyRejected) as caught:
        check(**changes)
    assert str(caught.value) == f"rejected: {telling}"
    assert caught.value.failure.kind == f"rejected: {telling.split(' (')[0]}"


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [("m", 0.5, True), ("m", 0.0, True), ("m", 1.1, False), ("m", -1e-9, False), ("v/w", -3.0, True),
     ("v/norm.running_var", 0.0, True), ("v/norm.running_var", -1e-6, False),
     ("d/norm.running_var", -1.0, True)],
)  # fmt: skip
def test_numbers_beside_a_model_are_in_the_ranges_that_its_method_names(name, value, fits):
    """A share, a model and a difference of models."""
    arrays = {n: np.array([0.5]) for n in ("m", "v/w", "v/norm.running_var", "d/norm.running_var")}
    form = ReplyForm(tuple(MODEL), form_of(arrays), within={"m": (0.0, 1.0)}, beside_models=frozenset({"v"}))
    extra = {**arrays, name: np.array([value])}
    sent = TrainReply(reply(), 5, 4, 0.5, 1.0, uplink_bytes=0, extra=extra)
    if fits:
        check_train(sent, replace(TASK, form=form))
        return
    with pytest.raises(ReplyRejected) as refused:
        check_train(sent, replace(TASK, form=form))
    assert refused.value.failure.kind == "rejected: beside out of range"


@pytest.mark.parametrize("many", [False, True])
def test_a_counter_rises_by_one_a_step_but_with_a_method_of_a_users(many):
    """Such a step may pass several batches through the network."""
    state = reply(**{"norm.count": np.array(4 + 9, np.int64)})
    task = replace(TASK, form=ReplyForm(tuple(MODEL), many_passes=many))
    sent = TrainReply(state, 5, 4, 0.5, 1.0, uplink_bytes=0)
    if many:
        check_train(sent, task)
        return
    with pytest.raises(ReplyRejected, match="count out of range"):
        check_train(sent, task)


@pytest.mark.parametrize("name", ["samples", "steps", "loss", "seconds"])
@pytest.mark.parametrize("digits", [400, 5000])
@pytest.mark.parametrize("sign", [1, -1])
def test_whole_numbers_of_any_size_are_refused(name, digits, sign):
    """Too large for a float, or even to be written down in decimal digits."""
    with pytest.raises(ReplyRejected) as caught:
        check(**{name: sign * 10**digits})
    assert str(caught.value).startswith(f"rejected: {name} out of range")


@given(st.integers(1, 10), st.integers(1, 6), st.integers(1, 12), st.integers(-3, 50))
def test_only_the_number_of_steps_that_windows_take_passes(samples, epochs, batch_size, steps):
    """The right number is counted one batch after another."""
    task = TrainTask(MODEL, 10, epochs, batch_size)
    right = epochs * len(range(0, samples, batch_size))
    if steps == right:
        check(samples=samples, steps=steps, task=task)
        return
    with pytest.raises(ReplyRejected, match="steps out of range"):
        check(samples=samples, steps=steps, task=task)


@given(states(), st.data())
def test_a_change_of_form_is_never_let_through(state, data):
    """Property: another name, shape or dtype of any entry is refused, and what passes can be averaged."""
    weighted_mean([state, state], [1, 2])
    name = data.draw(st.sampled_from(sorted(state)))
    entry = state[name]
    other = np.dtype(np.float32 if entry.dtype != np.float32 else np.int64)
    changed = data.draw(
        st.sampled_from(
            [
                entry[..., None],
                np.zeros(entry.shape, other),
                np.append(entry.reshape(-1), entry.dtype.type(0)),
            ]
        )
    )
    for bad in (
        {**state, name: changed},
        {**state, "other": entry},
        {n: a for n, a in state.items() if n != name},
    ):
        with pytest.raises(ReplyRejected, match=r"^rejected: other"):
            check_form(bad, state)


HUGE = {np.dtype(np.float32): [1e17, -1e30], np.dtype(np.float64): [1e200]}


@given(states(sane=True), st.data())
def test_one_impossible_number_is_found_anywhere(state, data):
    """Property: sane states pass as they are; one bad number at any place costs the reply."""
    check_values(state, state, (), steps=0)
    filled = [name for name, entry in state.items() if entry.size]
    if not filled:
        return
    name = data.draw(st.sampled_from(filled))
    bad = {n: a.copy() for n, a in state.items()}
    dtype = bad[name].dtype
    bad_numbers = (
        [np.nan, np.inf, -np.inf] + [1e17, -1e30] * (dtype == np.float32) + [1e200] * (dtype == np.float64)
    )
    if np.issubdtype(dtype, np.integer):
        bad_numbers = [
            n
            for n in (255, 2**31 - 1, -(2**31), 2**63 - 1)
            if np.iinfo(dtype).min <= n <= np.iinfo(dtype).max
        ]
    where = data.draw(st.integers(0, bad[name].size - 1))
    bad[name].reshape(-1)[where] = data.draw(st.sampled_from(bad_numbers))
    with pytest.raises(ReplyRejected, match=r"not finite|too large|count out of range"):
        check_values(bad, state, (), steps=3)


@pytest.mark.parametrize(
    ("sent", "came", "is_possible"),
    [(0, 24, True), (0, 25, False), (20, 3, True), (20, -1, False), (-1, 23, True), (-1, -2, False)],
)
def test_a_whole_number_of_an_own_layer_may_count_windows_or_point_into_a_ring(sent, came, is_possible):
    """12 windows, twice: up to 24 more, or anything back to 0; a BatchNorm's counter goes by steps alone."""
    state = {"own.seen": np.array([came]), "norm.running_var": np.ones(1), "norm.count": np.array(6)}
    model = {**state, "own.seen": np.array([sent]), "norm.count": np.array(0)}
    if is_possible:
        check_values(state, model, ["norm.running_var"], steps=6, windows=24)
        return
    with pytest.raises(ReplyRejected, match=r"count out of range \(entry 'own.seen'"):
        check_values(state, model, ["norm.running_var"], steps=6, windows=24)


@pytest.mark.parametrize(("calls", "came", "is_possible"), [(1, 7, False), (2, 12, True), (2, 13, False)])
def test_a_counter_goes_by_the_calls_of_its_layer(calls, came, is_possible):
    """Six steps: a layer called twice in each counts twelve."""
    state, variances = {"norm.running_var": np.ones(1), "norm.count": np.array(came)}, ["norm.running_var"]
    model = {**state, "norm.count": np.array(0)}
    if is_possible:
        check_values(state, model, calls * variances, steps=6, windows=24)
        return
    with pytest.raises(ReplyRejected, match=r"count out of range \(entry 'norm.count'"):
        check_values(state, model, calls * variances, steps=6, windows=24)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("others", [0, 7, 2000])
def test_what_could_not_be_squared_and_summed_is_too_large(dtype, others):
    """A number just below √(max / 2²⁰) passes, of either sign, alone and among others; one above does not."""
    limit = math.sqrt(float(np.finfo(dtype).max) / 2**20)
    for share in (0.99, -0.99, 1.01, -1.01):
        state = {"w": np.append(np.zeros(others, dtype), dtype(share * limit))}
        if abs(share) < 1:
            check_values(state, state, (), steps=0)
            continue
        with pytest.raises(ReplyRejected, match="too large"):
            check_values(state, state, (), steps=0)


@pytest.mark.parametrize("name", MODEL)
def test_an_algorithm_may_send_any_entries_alone(name):
    """As FedBN does, whose statistics stay at home; each is checked as among all others."""
    alone, others = {name: MODEL[name]}, without(name)
    for state in (alone, others):
        check(state, task=replace(TASK, form=ReplyForm(tuple(state))))
    odd = {"head.weight": np.nan, "norm.running_var": -1, "norm.count": 3}[name]
    with pytest.raises(ReplyRejected):
        check({name: np.full_like(MODEL[name], odd)}, task=replace(TASK, form=ReplyForm((name,))))


@given(states(sane=True), st.data())
def test_no_negative_variance_passes(state, data):
    named = [n for n, a in state.items() if a.size and np.issubdtype(a.dtype, np.floating)]
    if not named:
        return
    variances = data.draw(st.lists(st.sampled_from(named), min_size=1, unique=True))
    good = {n: np.asarray(np.abs(a)) if n in variances else a for n, a in state.items()}
    check_values(good, good, variances, steps=0)
    name = data.draw(st.sampled_from(variances))
    bad = {**good, name: good[name].copy()}
    bad[name].reshape(-1)[data.draw(st.integers(0, bad[name].size - 1))] = -0.5
    with pytest.raises(ReplyRejected, match="variance out of range"):
        check_values(bad, good, variances, steps=0)


# --- messages that cannot be read -------------------------------------------------------------------------

CONTEXT = RoundContext(42, 3, 7, "/data", "/run.log", 99, 1.5)


def numbered(message):
    message.metadata.__dict__["_message_id"] = "1"
    return message


def trained(**metrics):
    """A good answer to a train message, with other metrics."""
    (asked,) = train_messages([1], to_record(MODEL), CONTEXT)
    made = train_reply(numbered(asked), TrainResult(reply(), 0.5, 4), 5, 1.0)
    made.content["metrics"].__dict__["_data"].update(metrics)
    return made


def admitted_or_refused(admit):
    """Admitted reply; None for one refused in words that can be printed."""
    try:
        return admit()
    except ReplyRejected as rejected:
        words = str(rejected)
    assert words.isprintable()
    return None


class Broken(Exception):
    def __str__(self):
        raise SystemExit("no words")


class Hostile:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name):
        raise Broken


anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.just(10**400),
    st.just(-(10**5000)), st.lists(st.one_of(st.integers(), st.floats(), st.text()), max_size=5),
    st.builds(Hostile), st.just(np.float32(1.0)), st.just({}),
)  # fmt: skip


@given(st.sampled_from(["num-examples", "steps", "train-loss", "train-seconds", "norm_bit"]), anything)
def test_whatever_a_metric_is_the_reply_is_read_or_refused(name, value):
    admitted = admitted_or_refused(lambda: admit_train(trained(**{name: value}), TASK))
    if admitted is None:
        return
    assert (admitted.samples, admitted.steps) == (5, 4)
    assert 0 <= admitted.loss <= 1e39
    assert 0 <= admitted.seconds <= 90
    assert admitted.clipped in (None, False, True)


@given(
    st.sampled_from(
        [
            "own/val/loss",
            "own/val/sums/confusion",
            "own/val/windows",
            "own/test/loss",
            "x/loss",
            "/loss",
            "loss",
        ]
    ),
    anything,
)
def test_whatever_an_evaluation_is_it_is_read_or_refused(name, value):
    (asked,) = evaluate_messages([1], {OWN: to_record(MODEL)}, ("val", "test"), CONTEXT)
    good = {(OWN, split): classified(np.array([[1, 1], [0, 1]]), 0.5) for split in ("val", "test")}
    made = evaluate_reply(numbered(asked), good)
    made.content["metrics"].__dict__["_data"][name] = value
    admitted = admitted_or_refused(lambda: admit_evaluations(made, (OWN,), {"val": 3, "test": 3}, 2))
    if admitted is None:
        return
    assert admitted.keys() == good.keys()
    for evaluation in admitted.values():
        assert evaluation.confusion.dtype == np.int64
        assert evaluation.confusion.sum() == 3
        assert not -1e400 < evaluation.loss < 0


@pytest.mark.parametrize(
    "records",
    [
        {},
        {"metrics": MetricRecord()},
        {"arrays": MetricRecord({"a": 1})},
        {"metrics": to_record(MODEL)},
    ],
    ids=["nothing", "no metrics", "numbers for arrays", "arrays for numbers"],
)  # fmt: skip
def test_records_that_are_missing_or_another_kind_are_refused(records):
    (asked,) = train_messages([1], to_record(MODEL), CONTEXT)
    message = Message(RecordDict(records), reply_to=numbered(asked))
    with pytest.raises(ReplyRejected, match="not readable"):
        admit_train(message, TASK)
    with pytest.raises(ReplyRejected, match=r"not readable|other entries"):
        admit_evaluations(message, (OWN,), {"val": 3}, 2)


# --- evaluate replies --------------------------------------------------------------------------------------

WINDOWS = {"val": 3, "test": 5}


def confusions(**changes):
    good = {
        ("own", "val"): np.array([[1, 1], [0, 1]]),
        ("own", "test"): np.array([[2, 0], [1, 2]]),
    }
    all_of_them = {**good, **{("own", split): np.array(matrix) for split, matrix in changes.items()}}
    return {at: counted(matrix, WINDOWS[at[1]]) for at, matrix in all_of_them.items()}


def counted(matrix, windows):
    """An evaluation that says how many windows it is of, whatever its confusion matrix says."""
    return replace(classified(matrix, 0.5), windows=windows)


@pytest.mark.parametrize(
    ("given_", "kind"),
    [
        (confusions(val=[[1, 1], [0, 2]]), "other number of windows (own model, val windows: 4 of 3)"),
        (confusions(test=[[6, 0], [-1, 0]]), "count out of range (own model, test windows: -1 to 6)"),
        (
            confusions(test=[[2**63 - 1, 5], [1, 0]]),
            f"count out of range (own model, test windows: 0 to {2**63 - 1})",
        ),
        ({("own", "val"): confusions()["own", "val"]}, "other entries (own test)"),
        ({**confusions(), ("offered", "val"): confusions()["own", "val"]}, "other entries (offered val)"),
    ],
)
def test_evaluate_replies_by_hand(given_, kind):
    check_evaluations(confusions(), ("own",), WINDOWS)
    with pytest.raises(ReplyRejected) as caught:
        check_evaluations(given_, ("own",), WINDOWS)
    assert str(caught.value) == f"rejected: {kind}"


@given(st.integers(1, 6), st.integers(1, 50), st.data())
def test_any_split_of_the_windows_over_the_cells_passes(classes, count, data):
    """Property: what adds up passes; one window more or less in any cell does not."""
    cells = data.draw(st.lists(st.integers(0, classes**2 - 1), min_size=count, max_size=count))
    matrix = np.bincount(cells, minlength=classes**2).reshape(classes, classes)
    check_evaluations({("own", "val"): counted(matrix, count)}, ("own",), {"val": count})
    changed = matrix.copy()
    changed.reshape(-1)[data.draw(st.integers(0, classes**2 - 1))] += data.draw(st.sampled_from([1, -1]))
    with pytest.raises(ReplyRejected):
        check_evaluations({("own", "val"): counted(changed, count)}, ("own",), {"val": count})


def test_losses_of_diverged_models_are_named():
    losses = {("own", "val"): 0.5, ("own", "test"): float("nan"), ("offered", "val"): float("inf")}
    assert not_finite_losses(losses) == ["own model, test windows", "offered model, val windows"]


# --- windows that only one of two models has right ------------------------------------------------------


def evaluated(own, this, pairs, windows=10):
    """Evaluations of an own and an offered model with so many of 10 windows right.

    `pairs` says of each on how many windows only the own model is right, and on how many only this one.
    """
    return {
        role: classified(np.array([[right, windows - right], [0, 0]]), 0.5, pairs[role])
        for role, right in (("own", own), ("offered", this))
    }


def test_counts_that_add_up_pass():
    """Own 6 of 10 right, offered 7: only own 2 and only offered 3, or 0 and 1; at most 4 are only offered."""
    for pair in ((2, 3), (0, 1), (3, 4)):
        check_differences(evaluated(6, 7, {"own": None, "offered": pair}), "own")
    alone = evaluated(6, 7, {"own": None, "offered": None})["own"]
    check_differences({"leaf-1": alone}, "own")  # own was not asked about


@pytest.mark.parametrize("pair", [(2, 2), (-1, 0), (4, 5), (7, 8), (3, 2)])
def test_counts_that_do_not_add_up_are_refused(pair):
    with pytest.raises(ReplyRejected, match=r"do not add up|out of range"):
        check_differences(evaluated(6, 7, {"own": None, "offered": pair}), "own")


@pytest.mark.parametrize(
    "pair", [(0.5, 0.5), (math.nan, 1.0), (1.0, math.inf), (0.0, -1.0), (5.0, 2.0), (1.0, 2.0)]
)
def test_differences_that_cannot_be_are_refused(pair):
    """Not counts; no numbers; a negative square; (Σd)² > n Σd² or beyond the counts; of another parity."""
    found = evaluated(6, 7, {"own": None, "offered": (2, 3)})
    found["offered"] = replace(found["offered"], differences=pair)
    with pytest.raises(ReplyRejected, match=r"do not add up|out of range"):
        check_differences(found, "own")


@pytest.mark.parametrize("pairs", [{"own": (0, 0), "offered": (2, 3)}, {"own": None, "offered": None}])
def test_counts_that_are_missing_or_too_many_are_refused(pairs):
    with pytest.raises(ReplyRejected, match="other entries"):
        check_differences(evaluated(6, 7, pairs), "own")


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_what_is_counted_passes(windows):
    own, other = np.array(windows).T
    found = evaluated(int(own.sum()), int(other.sum()), {"own": None, "offered": (0, 0)}, len(windows))
    found["offered"] = replace(found["offered"], differences=gain_sums(own, other))
    check_differences(found, "own")
