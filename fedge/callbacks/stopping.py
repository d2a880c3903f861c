"""Callbacks that end a run: no more improvement, or a budget is spent."""

import math
from collections.abc import Mapping, Sequence

from fedge.callbacks.callback import Callback, Round, Run
from fedge.config.registers.option import ConfigError, nearest, shown
from fedge.records.tables.columns import TEXT, Column
from fedge.records.tables.round_tables import tables_of
from fedge.tasks.configured import CLASSIFICATION
from hhar.quantity import quantity

VALIDATION = "validation"
_GLOBAL_COLUMNS = tables_of(CLASSIFICATION).rounds.columns  # those of other tasks have other scores
_OF_TEST = ("test_", "unseen_", "shared_", "tuned_")  # how columns of test windows begin


class EarlyStopping(Callback):
    """Ends a run when a column of its global rounds has not improved for some rounds (Prechelt 1998).

    Source: L. Prechelt, "Early stopping – but when?", 1998, class UP.
    """

    def __init__(
        self,
        metric: str = VALIDATION,
        patience: int = 10,
        min_delta: float = 0.0,
        mode: str = "auto",
    ) -> None:
        """Watch a column of metrics/global_rounds.csv.

        Args:
            metric: the column; "validation" for the mean validation score of served models, by the task's
                first score. Scores of test windows should not decide anything: a run ended by one says so.
            patience: global rounds in a row, at least 1, without a new best before the run ends.
            min_delta: least improvement of a new best, at least 0.
            mode: whether larger ("max") or smaller ("min") is better; "auto" goes by the column.

        Raises:
            ConfigError: one of them cannot be.
        """
        _refuse_no_text("early-stopping", "metric", metric)
        if type(patience) is not int or patience < 1:
            raise ConfigError(
                f"patience of early-stopping must be a whole number of at least 1, but is {shown(patience)}; "
                f"take for example 10"
            )
        _refuse_no_amount("early-stopping", "min_delta", min_delta, least=0.0)
        if mode not in ("auto", "min", "max"):
            raise ConfigError(
                f"mode of early-stopping must be auto, min or max, but is {shown(mode)}; leave it out"
            )
        self.metric = metric
        self.patience = patience
        self.min_delta = min_delta
        self.mode = mode
        self._less_is_better = _is_less_better(metric, _GLOBAL_COLUMNS)
        self._watch("accuracy", higher_is_better=True)
        self._every = 1  # global rounds between evaluations
        self._since: int | None = None  # global rounds done before the first one watched
        self.best: float | None = None
        self.best_round = 0

    def begin_run(self, run: Run) -> None:
        """Start afresh in a new run, even if the object has been used in another one."""
        self._watch(run.score, run.higher_is_better)
        if run.rounds_done == 0:
            self.best = self._since = None
        if self._since is None:  # otherwise its state is restored
            self._since = run.rounds_done
        if self.best is None:
            self.best_round = self._since

    def _watch(self, score: str, higher_is_better: bool) -> None:
        """Set column and direction for the task's first score."""
        self._column = f"val_{score}_mean" if self.metric == VALIDATION else self.metric
        less_is_better = not higher_is_better if self.metric == VALIDATION else self._less_is_better
        self._sign = -1.0 if self.mode == "min" or (self.mode == "auto" and less_is_better) else 1.0

    def read_columns(self, columns: Sequence[Column]) -> None:
        """Note the metric's direction among the columns of a run's global rounds.

        Raises:
            ConfigError: the metric is none of their numbers.
        """
        if self.metric != VALIDATION:
            _refuse_no_column("early-stopping", "metric", self.metric, columns)
            self._less_is_better = _is_less_better(self.metric, columns)

    def refuse_rare_evaluation(self, every: int) -> None:
        """Raise ConfigError if `patience` rounds can pass without an evaluation."""
        if self.patience < every:
            raise ConfigError(
                f"patience of early-stopping must be at least evaluate.every, {every}, because nothing is "
                f"measured in between, but is {self.patience}; raise it"
            )
        self._every = every

    def end_round(self, round_: Round) -> str | None:
        """Compare the round with the best so far; only an evaluated round is the last, for final scores."""
        value = round_.numbers[self._column]
        if value is not None and (self.best is None or self._sign * (value - self.best) > self.min_delta):
            self.best, self.best_round = float(value), round_.global_round
        rounds = round_.global_round - self.best_round
        if rounds < self.patience or round_.global_round % self._every:
            return None
        if self.best is None:
            return f"{self._column} was not measured in {quantity(rounds, 'global round')}"
        return (
            f"{self._column} has not got better than {self.best:.4g}, of global round {self.best_round}, for "
            f"{quantity(rounds, 'global round')}{self._test_column_remark}"
        )

    @property
    def _test_column_remark(self) -> str:
        """Remark on a decision by test windows; empty for other columns."""
        if not self._column.startswith(_OF_TEST):
            return ""
        return f"; chosen by test windows, so its {self._column.split('_', 1)[0]} scores are no measure of it"


class Budget(Callback):
    """Ends a run when the sum of a column of its global rounds has reached a budget."""

    _NAME, _UNIT = "budget", ""

    def __init__(self, column: str, most: float) -> None:
        """Watch a column of metrics/global_rounds.csv; totals of the run so far are not added up again.

        Args:
            column: the column.
            most: the budget in the column's unit, above 0. The round that reaches it is the last.

        Raises:
            ConfigError: one of them cannot be.
        """
        _refuse_no_text(self._NAME, "column", column)
        _refuse_no_amount(self._NAME, "most", most, above=0.0)
        self.columns: tuple[str, ...] = (column,)
        self.most = most
        self.spent = 0.0
        self._is_total = any(c.is_total for c in _GLOBAL_COLUMNS if c.name == column)

    def read_columns(self, columns: Sequence[Column]) -> None:
        """Raise ConfigError unless a run's global rounds have the summed columns."""
        for column in self.columns:
            _refuse_no_column(self._NAME, "column", column, columns)

    def begin_run(self, run: Run) -> None:
        """Start afresh in a new run, even if the object has been used in another one."""
        if run.rounds_done == 0:
            self.spent = 0.0

    def end_round(self, round_: Round) -> str | None:
        """Add the round to the sum."""
        values = [self._number(round_, column) for column in self.columns]
        self.spent = max(self.spent, *values) if self._is_total else self.spent + sum(values)
        if self.spent < self.most:
            return None
        unit = " and ".join(self.columns) if self._NAME == "budget" else self._UNIT
        spent = f"{self.spent:.6g} by global round {round_.global_round}"
        return f"the budget of {self.most:g} {unit} is spent: {spent}"

    def _number(self, round_: Round, column: str) -> float:
        """A round's number in a column; on the virtual clock, totals of devices are in versions.csv."""
        value = round_.numbers[column]
        if value is None and self._is_total:
            value = round_.on_clock.get(column)
        return float(value or 0.0)


class ByteBudget(Budget):
    """Ends a run when clients, leaves and cloud have exchanged a number of bytes of arrays, up and down."""

    _NAME, _UNIT = "byte-budget", "bytes"

    def __init__(self, most: float) -> None:
        """Allow `most` bytes, above 0; the round in which they are reached is the last."""
        super().__init__("uplink_bytes", most)
        self.columns = ("uplink_bytes", "downlink_bytes", "cloud_uplink_bytes", "cloud_downlink_bytes")


class TimeBudget(Budget):
    """Ends a run when its global rounds have taken a number of seconds of wall time.

    The number of rounds depends on the machine: two runs with this callback need not be equal.
    """

    _NAME, _UNIT = "time-budget", "s"

    def __init__(self, most: float) -> None:
        """Allow `most` seconds, above 0; the round in which they are reached is the last."""
        super().__init__("seconds", most)


class Floor(Callback):
    """Ends a run if its best validation score so far is below the floor of a global round.

    A search uses it to end trials worse than half of the earlier ones (median stopping).

    Source: D. Golovin et al., "Google Vizier: a service for black-box optimization", 2017.
    """

    def __init__(self, floors: Mapping[str, float]) -> None:
        """Watch the mean validation score of served models, by the task's first score.

        Args:
            floors: global round, as text → the worst score with which the run continues after it.

        Raises:
            ConfigError: it is no such table.
        """
        is_valid = isinstance(floors, Mapping) and all(
            str(number).isdecimal() and type(least) in (int, float) and math.isfinite(least)
            for number, least in floors.items()
        )
        if not is_valid:
            raise ConfigError(
                f"floors of floor must be a table of global rounds and scores, but is {shown(floors)}; set "
                f"for example callbacks-args.floor.floors.5=0.4"
            )
        self.floors = {str(number): float(least) for number, least in floors.items()}
        self._column, self._sign = "val_accuracy_mean", 1.0
        self.best: float | None = None

    def begin_run(self, run: Run) -> None:
        """Start afresh in a new run, even if the object has been used in another one."""
        self._column, self._sign = f"val_{run.score}_mean", 1.0 if run.higher_is_better else -1.0
        if run.rounds_done == 0:
            self.best = None

    def end_round(self, round_: Round) -> str | None:
        """Compare the best score so far with the round's floor; a run without scores continues."""
        value = round_.numbers[self._column]
        if value is not None and (self.best is None or self._sign * (value - self.best) > 0):
            self.best = float(value)
        least = self.floors.get(str(round_.global_round))
        if least is None or self.best is None or self._sign * (self.best - least) >= 0:
            return None
        return f"{self._column} has not got better than {self.best:.4g}, and {least:.4g} was needed by now"


def _refuse_no_text(name: str, argument: str, column: object) -> None:
    """Raise ConfigError when the name of a column is no text."""
    if not isinstance(column, str):
        raise ConfigError(
            f"{argument} of {name} must be a column of metrics/global_rounds.csv, but is {shown(column)}; "
            f"docs/tables.md lists them"
        )


def _is_less_better(name: str, columns: Sequence[Column]) -> bool:
    """Whether a column by name has smaller values that are better; False for no column."""
    return any(column.less_is_better for column in columns if column.name == name)


def _refuse_no_column(name: str, argument: str, column: str, columns: Sequence[Column]) -> None:
    """Raise ConfigError when there is no such column of numbers."""
    numbers = [other.name for other in columns if other.kind != TEXT]
    if column not in numbers:
        raise ConfigError(
            f"{argument} of {name} must be a column of metrics/global_rounds.csv, but is {shown(column)}"
            f"{nearest(column, numbers) or '; docs/tables.md lists them'}"
        )


def _refuse_no_amount(
    name: str, argument: str, value: object, least: float = -math.inf, above: float = -math.inf
) -> None:
    """Raise ConfigError when an amount is no number, or too small."""
    is_number = type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    if not is_number or value < least or value <= above:  # type: ignore[operator]
        rule = "above 0" if above == 0.0 else "at least 0"
        raise ConfigError(
            f"{argument} of {name} must be a number {rule}, but is {shown(value)}; change callbacks-args"
        )
