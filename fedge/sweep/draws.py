"""Draws of a search: options of the next trials, by Optuna, and limits below which trials are pruned."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedge.config.registers.option import Scalar
from fedge.sweep.search import Range, Search, Trial


def draw(search: Search, trials: Sequence[Trial], maximize: bool, count: int) -> list[dict[str, Scalar]]:
    """Options of the next trials, drawn by Optuna.

    Args:
        search: its seed, with the number of trials so far, seeds the draws.
        trials: all trials so far, in order.
        maximize: whether a larger validation score is better.
        count: number of trials to draw.
    """
    import optuna
    from optuna.trial import TrialState, create_trial

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    ranges = {key: _distribution(values) for key, values in search.space.items()}
    states = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
    study = optuna.create_study(
        direction="maximize" if maximize else "minimize", sampler=_sampler(search, len(trials))
    )
    for trial in trials:
        study.add_trial(
            create_trial(
                state=states[trial.state],
                value=None if trial.state == "failed" else trial.value,
                params={key: _to_optuna(search.space[key], value) for key, value in trial.options.items()},
                distributions=ranges,
                intermediate_values=_mean_course(trial.course),
            )
        )
    points = [study.ask(ranges).params for _ in range(count)]
    return [{key: _from_optuna(search.space[key], point[key]) for key in search.space} for point in points]


def _sampler(search: Search, number: int) -> Any:
    """Sampler of the batch after `number` trials."""
    from optuna.samplers import RandomSampler, TPESampler

    seed = int(np.random.SeedSequence([search.seed, number]).generate_state(1)[0])
    if search.sampler == "random":
        return RandomSampler(seed=seed)
    return TPESampler(seed=seed, constant_liar=search.batch > 1)


def _distribution(values: Range) -> Any:
    """Optuna's distribution of a range; choices by index, as TOML values may compare equal (1 and true)."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if values.choices:
        return CategoricalDistribution(range(len(values.choices)))
    kind: Any = IntDistribution if isinstance(values.low, int) else FloatDistribution
    return kind(values.low, values.high, log=values.is_log)


def _to_optuna(values: Range, value: Scalar) -> Scalar:
    """An option's value in Optuna's representation."""
    if not values.choices:
        return value
    return next(
        n for n, choice in enumerate(values.choices) if choice == value and type(choice) is type(value)
    )


def _from_optuna(values: Range, drawn: Any) -> Scalar:
    """An option's value from Optuna's representation."""
    value: Scalar = values.choices[drawn] if values.choices else drawn
    return value


def _mean_course(course: Mapping[int, Mapping[int, float]]) -> dict[int, float]:
    """Global round → mean over the seeds with this round."""
    rounds = sorted({number for by_round in course.values() for number in by_round})
    return {
        number: statistics.fmean(by_round[number] for by_round in course.values() if number in by_round)
        for number in rounds
    }


def floors(search: Search, trials: Sequence[Trial], seed: int) -> dict[str, float]:
    """Global round → median, over complete trials, of the best validation score so far, for one seed.

    Empty until `prune_after` trials are complete. Rounds reached by fewer trials are left out.
    """
    courses = [trial.course.get(seed, {}) for trial in trials if trial.state == "complete"]
    if not search.prune_after or len(courses) < search.prune_after:
        return {}
    rounds = sorted({number for course in courses for number in course})
    scores_by_round = {
        number: [course[number] for course in courses if number in course] for number in rounds
    }
    return {
        str(number): statistics.median(values)
        for number, values in scores_by_round.items()
        if len(values) >= search.prune_after
    }
