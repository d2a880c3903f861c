"""Early stopping and budgets, round by round, by hand."""

import json
from types import MappingProxyType

import pytest

from fedge.callbacks import Budget, ByteBudget, EarlyStopping, Floor, TimeBudget
from fedge.callbacks.callback import Round, Run
from fedge.callbacks.calls import Callbacks, refuse_other_columns
from fedge.config.config import Config
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import TASKS
from fedge.records.tables.columns import TEXT
from fedge.records.tables.round_tables import tables_of
from fedge.tasks.configured import CLASSIFICATION, task_of

COLUMNS = [column for column in tables_of(CLASSIFICATION).rounds.columns if column.kind != TEXT]


def ended(callback, **columns):
    """(round, reason) of the first of these rounds after which a callback ends the run."""
    for number, values in enumerate(zip(*columns.values(), strict=True), start=1):
        numbers = MappingProxyType(dict(zip(columns, values, strict=True)))
        reason = callback.end_round(Round(number, 99, numbers))
        if reason:
            return number, reason
    return None


def checked(callback):
    """Let a callback see the columns of a run, as is done before one starts."""
    refuse_other_columns(callback, Config())


def run_after(rounds_done):
    return Run(None, {}, 1, (3,), 99, rounds_done)


def test_patience_counts_rounds_since_the_best():
    rounds = [0.5, 0.6, 0.6, 0.55, 0.7, 0.7, 0.69, 0.7]
    reason = "val_accuracy_mean has not got better than 0.7, of global round 5, for 3 global rounds"
    assert ended(EarlyStopping(patience=3), val_accuracy_mean=rounds) == (8, reason)
    assert ended(EarlyStopping(patience=2), val_accuracy_mean=rounds)[0] == 4
    assert ended(EarlyStopping(patience=4), val_accuracy_mean=rounds) is None


def test_a_gain_must_be_larger_than_min_delta():
    rounds = [0.5, 0.55, 0.6, 0.65]
    assert ended(EarlyStopping(patience=2, min_delta=0.06), val_accuracy_mean=rounds) is None
    assert ended(EarlyStopping(patience=2, min_delta=0.2), val_accuracy_mean=rounds)[0] == 3


def test_losses_are_better_when_they_fall_unless_one_says_otherwise():
    falling = [3.0, 2.0, 1.0]
    assert ended(EarlyStopping("test_loss_mean", patience=1), test_loss_mean=falling) is None
    assert ended(EarlyStopping("test_loss_mean", patience=1, mode="max"), test_loss_mean=falling)[0] == 2
    assert ended(EarlyStopping(patience=1, mode="min"), val_accuracy_mean=falling) is None


def test_a_choice_by_test_windows_is_said():
    """Scores of validation windows are what is chosen by; a column of test windows is named aloud."""
    for column, first in (("test_accuracy_mean", "test"), ("unseen_accuracy_worst", "unseen")):
        _, reason = ended(EarlyStopping(column, patience=1), **{column: [0.5, 0.4]})
        assert reason.endswith(f"; chosen by test windows, so its {first} scores are no measure of it")
    assert "chosen" not in ended(EarlyStopping(patience=1), val_accuracy_mean=[0.5, 0.4])[1]


def test_what_is_not_measured_is_not_better():
    name = "unseen_accuracy_mean"
    assert ended(EarlyStopping(name, patience=2), **{name: [None, None, None]}) == (
        2,
        "unseen_accuracy_mean was not measured in 2 global rounds",
    )
    assert ended(EarlyStopping(name, patience=2), **{name: [None, 0.1, None, None]})[0] == 4


@pytest.mark.parametrize(("every", "patience", "last"), [(1, 3, 7), (2, 3, 8), (4, 5, 12), (4, 4, 8)])
def test_a_run_ends_after_an_evaluated_round(every, patience, last):
    """The best is round 4; other rounds have no scores, with which the run would end without any."""
    rounds = [None if n % every else 0.9 if n == 4 else 0.5 for n in range(1, 13)]
    watch = EarlyStopping(patience=patience)
    watch.refuse_rare_evaluation(every)
    number, reason = ended(watch, val_accuracy_mean=rounds)
    assert (number, rounds[number - 1]) == (last, 0.5)
    assert reason.endswith(f"of global round 4, for {last - 4} global rounds")


def test_an_object_begins_anew_in_a_new_run_and_late_in_one_that_goes_on():
    watch = EarlyStopping(patience=2)
    assert ended(watch, val_accuracy_mean=[0.9, 0.9, 0.9])[0] == 3
    watch.begin_run(run_after(0))
    assert ended(watch, val_accuracy_mean=[0.1, 0.1, 0.1])[0] == 3
    late = EarlyStopping(patience=2)
    late.begin_run(run_after(50))
    numbers = {"val_accuracy_mean": None}
    assert [bool(late.end_round(Round(number, 99, numbers))) for number in (51, 52)] == [False, True]


@pytest.mark.parametrize(
    ("name", "arguments", "column", "rounds"),
    [
        ("early-stopping", {"patience": 5}, "val_accuracy_mean", [0.5, 0.6, 0.4] + [0.6] * 9),
        ("early-stopping", {"patience": 5}, "val_accuracy_mean", [None] * 12),
        ("budget", {"column": "uplink_bytes", "most": 70.0}, "uplink_bytes", [10] * 12),
        ("floor", {"floors": {"7": 0.5}}, "val_accuracy_mean", [0.4, *[None] * 11]),
    ],
)
def test_a_run_that_goes_on_ends_where_it_would_have_ended(name, arguments, column, rounds):
    config = from_run_config({"callbacks": name, "callbacks-args": json.dumps({name: arguments})})

    def last_round(stopped_after):
        callbacks, facts = None, {}
        for number, value in enumerate(rounds, start=1):
            if number in (1, stopped_after + 1):
                callbacks = Callbacks(config)
                callbacks.restore(json.loads(json.dumps(facts)))
                callbacks.begin_run(run_after(number - 1))
            ((_, callback),) = callbacks._callbacks
            if callback.end_round(Round(number, 99, {column: value})):
                return number
            facts = callbacks.facts()

    assert last_round(0) is not None
    assert {last_round(number) for number in range(5)} == {last_round(0)}


def test_budgets_add_up():
    assert ended(TimeBudget(5), seconds=[2.0, 2.0, 2.0, 2.0]) == (
        3,
        "the budget of 5 s is spent: 6 by global round 3",
    )
    names = ("uplink_bytes", "downlink_bytes", "cloud_uplink_bytes", "cloud_downlink_bytes")
    bytes_ = {name: [10, 10] for name in names}
    assert ended(ByteBudget(80), **bytes_) == (2, "the budget of 80 bytes is spent: 80 by global round 2")
    assert ended(Budget("clients_failed", 3), clients_failed=[1, 1, 0, 1])[0] == 4


@pytest.mark.parametrize("column", ["joules", "virtual_s"])
def test_a_budget_of_devices_holds_on_the_virtual_clock(column):
    """There global_rounds.csv has no such numbers, so no budget was ever spent."""
    budget = Budget(column, 8.0)
    reasons = [
        budget.end_round(Round(number, 9, {column: None}, on_clock={column: 5.0 * number}))
        for number in (1, 2)
    ]
    assert reasons == [None, f"the budget of 8 {column} is spent: 10 by global round 2"]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_a_budget_adds_up_numbers_of_rounds_and_no_totals_so_far(column):
    assert column.is_total == ("so far" in column.meaning)
    last = 4 if column.is_total else 2
    assert ended(Budget(column.name, 2.5), **{column.name: [1.0, 2.0, 2.4, 2.6]})[0] == last


@pytest.mark.parametrize("task", TASKS.names)
def test_every_score_of_a_task_has_its_own_direction(task):
    """Scores of which less is better among the further ones, too, as the mean absolute error."""
    config = from_run_config({"train.task": task})
    learned = task_of(config.train)
    for number, score in enumerate(learned.scores):
        for prefix in ("unseen_", "" if number else "test_"):
            watch = EarlyStopping(column := f"{prefix}{score.name}_mean", patience=1)
            refuse_other_columns(watch, config)
            watch.begin_run(Run(None, {}, 1, (3,), 99, 0, learned.scores[0].name, score.higher_is_better))
            assert (ended(watch, **{column: [1.0, 2.0, 3.0]}) is None) == score.higher_is_better


def test_of_losses_spread_costs_and_failures_less_is_better():
    words = ("loss", "std", "bytes", "seconds", "failed", "churn", "epsilon", "virtual_s", "joules")
    for column in COLUMNS:
        assert column.less_is_better == any(word in column.name for word in words), column.name


def test_a_budget_of_an_object_begins_anew_in_a_new_run():
    budget = TimeBudget(3)
    assert ended(budget, seconds=[2.0, 2.0])[0] == 2
    budget.begin_run(run_after(0))
    assert ended(budget, seconds=[2.0, 0.5]) is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: checked(EarlyStopping("test_accuracy")),
            r"metric of early-stopping must be a column .* did you mean",
        ),
        (lambda: checked(EarlyStopping("cluster_labels")), "metric of early-stopping must be a column"),
        (
            lambda: EarlyStopping(patience=0),
            "patience of early-stopping must be a whole number of at least 1",
        ),
        (lambda: EarlyStopping(patience=2.5), "patience of early-stopping must be a whole number"),
        (lambda: EarlyStopping(min_delta=-1), "min_delta of early-stopping must be a number at least 0"),
        (lambda: EarlyStopping(mode="up"), "mode of early-stopping must be auto, min or max"),
        (lambda: ByteBudget(0), "most of byte-budget must be a number above 0"),
        (lambda: TimeBudget(float("nan")), "most of time-budget must be a number above 0"),
        (lambda: TimeBudget("5"), "most of time-budget must be a number above 0, but is '5'"),
        (lambda: checked(Budget("bytes", 5)), "column of budget must be a column"),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


def test_a_floor_ends_what_has_never_been_as_good():
    """The best so far counts, not the last; rounds without a floor, and equal scores, end nothing."""
    name = "val_accuracy_mean"
    reason = "val_accuracy_mean has not got better than 0.5, and 0.6 was needed by now"
    assert ended(Floor({"3": 0.6}), **{name: [0.1, 0.5, 0.4]}) == (3, reason)
    assert ended(Floor({"3": 0.5}), **{name: [0.1, 0.5, 0.4]}) is None
    assert ended(Floor({"2": 0.6, "3": 0.2}), **{name: [0.1, None, 0.4]})[0] == 2
    assert ended(Floor({"1": 0.6}), **{name: [None, 0.1]}) is None


def test_a_floor_is_a_ceiling_where_less_is_better():
    floor = Floor({"1": 0.5})
    floor.begin_run(Run(None, {}, 1, (3,), 99, 0, "rmse", False))
    assert ended(floor, val_rmse_mean=[0.4]) is None
    floor.begin_run(Run(None, {}, 1, (3,), 99, 0, "rmse", False))
    assert ended(floor, val_rmse_mean=[0.6])[0] == 1


@pytest.mark.parametrize("floors", [3, {"a": 0.5}, {"1": "high"}, {"1": float("nan")}, {"-1": 0.5}])
def test_floors_that_cannot_be_are_refused(floors):
    with pytest.raises(ConfigError, match=r"^floors of floor must be a table"):
        Floor(floors)
