import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.leaf.checks import (
    NormHistory,
    ReplyRejected,
    check_evaluations,
    check_only_one_right,
    check_train,
    finite_mean,
    first_not_finite,
    not_finite_losses,
)
from fedge.metrics.scores import only_one_right
from fedge.states.averaging import weighted_mean

MODEL = {
    "head.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "norm.running_var": np.ones(3, np.float64),
    "norm.count": np.array(4, np.int64),
}


def reply(**entries):
    """Return the model with other entries."""
    return {**{name: array.copy() for name, array in MODEL.items()}, **entries}


def check(state=None, samples=5, expected=10, steps=2, loss=0.5):
    check_train(reply() if state is None else state, MODEL, samples, expected, steps, loss)


def without(name):
    return {n: a for n, a in reply().items() if n != name}


# --- train replies ----------------------------------------------------------------------------------------


def test_what_the_leaf_asked_for_passes():
    check()
    check(samples=10, steps=1, loss=0.0)
    check(reply(**{"head.weight": np.full((2, 3), 1e30, np.float32)}))  # finite, though its square is not


@pytest.mark.parametrize(
    ("changes", "telling"),
    [
        ({"samples": 0}, "samples out of range (0, but 1 to 10 were given)"),
        ({"samples": 11}, "samples out of range (11, but 1 to 10 were given)"),
        ({"samples": -3}, "samples out of range (-3, but 1 to 10 were given)"),
        ({"samples": True}, "samples out of range (True, but 1 to 10 were given)"),
        ({"samples": 2.0}, "samples out of range (2.0, but 1 to 10 were given)"),
        ({"steps": 0}, "steps out of range (0, but a client takes at least 1)"),
        ({"steps": 1.0}, "steps out of range (1.0, but a client takes at least 1)"),
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
    ],
)
def test_each_rule_by_hand(changes, telling):
    with pytest.raises(ReplyRejected) as caught:
        check(**changes)
    assert str(caught.value) == f"rejected: {telling}"
    assert caught.value.failure.kind == f"rejected: {telling.split(' (')[0]}"


numbers = st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e-45, 1e20, 1e30, -3e38])
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
dtypes = st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8])


@st.composite
def states(draw):
    """Return a state of a few entries of any shape and dtype, all finite."""
    state = {}
    for index in range(draw(st.integers(1, 4))):
        shape, dtype = draw(shapes), draw(dtypes)
        values = draw(st.lists(numbers, min_size=1, max_size=4))
        with np.errstate(all="ignore"):
            flat = np.resize(np.array(values), int(np.prod(shape, dtype=int)))
            if not np.issubdtype(dtype, np.floating):
                flat = np.arange(flat.size)
            elif dtype is np.float16:
                flat = np.clip(flat, -6e4, 6e4)
            state[f"entry-{index}"] = flat.astype(dtype).reshape(shape)
    return state


@given(states(), st.data())
def test_one_number_that_is_none_is_found_anywhere(state, data):
    """Property: finite states pass; a NaN or infinity at any place costs only the state that has it."""
    check_train(state, state, 1, 1, 1, 0.0)
    assert finite_mean({1: state, 2: state}, {1: 1.0, 2: 5.0})[1] == {}
    spoilt = [n for n, a in state.items() if a.size and np.issubdtype(a.dtype, np.floating)]
    if not spoilt:
        return
    name = data.draw(st.sampled_from(spoilt))
    bad = {n: a.copy() for n, a in state.items()}
    where = data.draw(st.integers(0, bad[name].size - 1))
    bad[name].reshape(-1)[where] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    assert first_not_finite(bad) == name
    others = {1: state, 5: {n: -a for n, a in state.items()}}
    mean, refused = finite_mean({1: state, 3: bad, 5: others[5]}, {1: 2.0, 3: 1.0, 5: 3.0})
    assert {c: str(r) for c, r in refused.items()} == {3: f"rejected: not finite (entry {name!r})"}
    expected = weighted_mean([others[1], others[5]], [2.0, 3.0])
    assert {n: a.tobytes() for n, a in mean.items()} == {n: a.tobytes() for n, a in expected.items()}


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
            check_train(bad, state, 1, 1, 1, 0.0)


def test_infinities_that_cancel_are_found():
    """inf and −inf at one place make NaN; both clients are named, and without any other there is no mean."""
    states = {0: {"a": np.array([np.inf], np.float32)}, 1: {"a": np.array([-np.inf], np.float32)}}
    mean, refused = finite_mean(states, {0: 1.0, 1: 1.0})
    assert mean is None
    assert set(refused) == {0, 1}
    assert finite_mean({}, {}) == (None, {})


def test_a_bad_number_far_into_a_large_entry_is_found():
    """Entries are looked through in parts of 2^20."""
    large = np.zeros(2**21 + 7, np.float32)
    assert first_not_finite({"a": np.zeros(3, np.float32), "b": large}) is None
    large[-1] = np.nan
    assert first_not_finite({"a": np.zeros(3, np.float32), "b": large}) == "b"


# --- the size of updates --------------------------------------------------------------------------------


def test_updates_far_above_the_median_by_hand():
    """Median of 1, 2, 3, 100 is 2.5; with factor 3 the limit is 7.5. The history takes in the others only."""
    history = NormHistory(4)
    refused = history.too_large({0: 1.0, 1: 2.0, 2: 3.0, 3: 100.0}, 3.0)
    assert {c: str(r) for c, r in refused.items()} == {
        3: "rejected: update too large (norm 100, the leaf's median is 2.5)"
    }
    assert list(history.norms) == [1.0, 2.0, 3.0]
    # median of 1, 2, 3, 6.1: 2.5 again; alone, client 3 would have been the median itself
    assert not history.too_large({3: 6.1}, 3.0)
    assert list(history.norms) == [1.0, 2.0, 3.0, 6.1]


def test_factor_zero_lets_all_pass_and_remembers_nothing():
    history = NormHistory(2)
    assert not history.too_large({0: 1.0, 1: 1e300}, 0.0)
    assert not history.norms


def test_infinite_norms_are_refused_even_alone():
    assert set(NormHistory(1).too_large({0: float("inf")}, 2.0)) == {0}
    assert set(NormHistory(3).too_large({0: float("inf"), 1: float("inf"), 2: 1.0}, 2.0)) == {0, 1}


def test_a_leaf_that_stands_still_refuses_nobody():
    """A median of zero says nothing about how large an update may be."""
    assert not NormHistory(3).too_large({0: 0.0, 1: 0.0, 2: 1.0}, 5.0)


@given(
    st.lists(st.floats(0.5, 2), min_size=3, max_size=9),
    st.floats(1e3, 1e30) | st.just(float("inf")),
    st.randoms(use_true_random=False),
)
def test_a_minority_cannot_move_the_limit(honest, attack, random):
    """Property: whatever fewer than half of the clients send, in any order and for many rounds, only they
    are refused (honest norms lie within a factor of 4, the limit is 5 times the median).
    """
    bad = (len(honest) - 1) // 2
    norms = [*honest, *[attack] * bad]
    clients = list(range(len(norms)))
    random.shuffle(clients)
    history = NormHistory(len(norms))
    for _ in range(12):
        refused = history.too_large(dict(zip(clients, norms, strict=True)), 5.0)
        assert set(refused) == set(clients[len(honest) :])
    assert len(history.norms) <= 10 * len(norms)


# --- evaluate replies --------------------------------------------------------------------------------------

WINDOWS = {"val": 3, "test": 5}


def confusions(**changes):
    good = {
        ("own", "val"): np.array([[1, 1], [0, 1]]),
        ("own", "test"): np.array([[2, 0], [1, 2]]),
    }
    return {**good, **{("own", split): np.array(matrix) for split, matrix in changes.items()}}


@pytest.mark.parametrize(
    ("given_", "kind"),
    [
        (confusions(val=[[1, 1], [0, 2]]), "other number of windows (own model, val windows: 4 of 3)"),
        (confusions(test=[[6, 0], [-1, 0]]), "count out of range (own model, test windows: -1 to 6)"),
        (
            confusions(test=[[2**63 - 1, 5], [1, 0]]),
            f"count out of range (own model, test windows: 0 to {2**63 - 1})",
        ),
        (confusions(val=[[3]]), "other shape (own model, val windows: (1, 1) for 2 classes)"),
        ({("own", "val"): confusions()["own", "val"]}, "other entries (own test)"),
        ({**confusions(), ("offered", "val"): confusions()["own", "val"]}, "other entries (offered val)"),
    ],
)
def test_evaluate_replies_by_hand(given_, kind):
    check_evaluations(confusions(), ("own",), WINDOWS, 2)
    with pytest.raises(ReplyRejected) as caught:
        check_evaluations(given_, ("own",), WINDOWS, 2)
    assert str(caught.value) == f"rejected: {kind}"


@given(st.integers(1, 6), st.integers(1, 50), st.data())
def test_any_split_of_the_windows_over_the_cells_passes(classes, count, data):
    """Property: what adds up passes; one window more or less in any cell does not."""
    cells = data.draw(st.lists(st.integers(0, classes**2 - 1), min_size=count, max_size=count))
    matrix = np.bincount(cells, minlength=classes**2).reshape(classes, classes)
    check_evaluations({("own", "val"): matrix}, ("own",), {"val": count}, classes)
    changed = matrix.copy()
    changed.reshape(-1)[data.draw(st.integers(0, classes**2 - 1))] += data.draw(st.sampled_from([1, -1]))
    with pytest.raises(ReplyRejected):
        check_evaluations({("own", "val"): changed}, ("own",), {"val": count}, classes)


def test_losses_of_diverged_models_are_named():
    losses = {("own", "val"): 0.5, ("own", "test"): float("nan"), ("offered", "val"): float("inf")}
    assert not_finite_losses(losses) == ["own model, test windows", "offered model, val windows"]


# --- windows that only one of two models has right ------------------------------------------------------


def evaluated(own, this, windows=10):
    """Return confusion matrices of an own and an offered model with so many of 10 windows right."""
    return {
        role: np.array([[right, windows - right], [0, 0]])
        for role, right in (("own", own), ("offered", this))
    }


def test_counts_that_add_up_pass():
    """Own 6 of 10 right, offered 7: only own 2 and only offered 3, or 0 and 1; at most 4 are only offered."""
    for pair in ((2, 3), (0, 1), (3, 4)):
        check_only_one_right({"own": None, "offered": pair}, evaluated(6, 7), "own")
    check_only_one_right(
        {"leaf-1": None}, {"leaf-1": evaluated(6, 7)["own"]}, "own"
    )  # own was not asked about


@pytest.mark.parametrize("pair", [(2, 2), (-1, 0), (4, 5), (7, 8), (3, 2)])
def test_counts_that_do_not_add_up_are_refused(pair):
    with pytest.raises(ReplyRejected, match="counts do not add up") as caught:
        check_only_one_right({"own": None, "offered": pair}, evaluated(6, 7), "own")
    assert caught.value.failure.kind == "rejected: counts do not add up"


@pytest.mark.parametrize("counts", [{"own": (0, 0), "offered": (2, 3)}, {"own": None, "offered": None}])
def test_counts_that_are_missing_or_too_many_are_refused(counts):
    with pytest.raises(ReplyRejected, match="other entries"):
        check_only_one_right(counts, evaluated(6, 7), "own")


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_what_is_counted_passes(windows):
    own, other = np.array(windows).T
    matrices = evaluated(int(own.sum()), int(other.sum()), len(windows))
    check_only_one_right({"own": None, "offered": only_one_right(own, other)}, matrices, "own")
