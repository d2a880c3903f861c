"""A run that a callback ends has the bits of one that was planned to end there."""

import csv
import io

import pytest
from flower_runs import comparable
from small_runs import small_config

from fedge import simulate
from fedge.callbacks import Callback

pytestmark = pytest.mark.whole_runs

PLANNED = {"num_server_rounds": 2, "hierarchy__leaf_rounds": 1}
OPEN = {"evaluate__every": 5, "gate__enabled": False}  # a gate would have its offers evaluated
FLAT = {"scaffold__enabled": False, "cluster__enabled": False, "gate__enabled": False}
EXTENDED = pytest.mark.extended


class Ends(Callback):
    """Gives a reason in one hook of global round 2, and notes rows of rounds."""

    def __init__(self, hook):
        self.told = []
        if hook != "end_round":
            setattr(self, hook, lambda told: "enough" if told.global_round == 2 else None)
        self.hook = hook

    def end_round(self, round_):
        self.told.append(dict(round_.numbers))
        return "enough" if self.hook == "end_round" and round_.global_round == 2 else None


def further_tables(folder):
    """Tables that only some runs have, without times."""
    found = {}
    for name in ("client_models", "common_test", "servers"):
        path = folder / "metrics" / f"{name}.csv"
        if path.is_file():
            rows = list(csv.DictReader(path.read_text().splitlines()))
            found[name] = [{k: v for k, v in row.items() if "seconds" not in k} for row in rows]
    return found


@pytest.mark.parametrize(
    ("hook", "changes"),
    [
        ("end_round", OPEN),
        ("end_round", {**OPEN, "personal__leaf_rounds": 2, "partition__unseen_clients": 1}),
        pytest.param("end_round", {"personal__leaf_rounds": 1}, marks=EXTENDED, id="evaluated, not tuned"),
        *(
            pytest.param(hook, {**OPEN, "personal__leaf_rounds": 1}, marks=EXTENDED, id=hook)
            for hook in ("begin_round", "begin_leaf_round", "end_leaf_round")
        ),
        *(
            pytest.param("end_round", {**OPEN, **changes}, marks=EXTENDED, id=name)
            for name, changes in {
                "a method's models": {"train__algorithm": "ditto", "scaffold__enabled": False},
                "tuned models": {
                    "train__algorithm": "ditto",
                    "scaffold__enabled": False,
                    "personal__leaf_rounds": 1,
                },
                "common test": {"evaluate__common": "test"},
                "no gate": {"gate__enabled": False},
                "tree": {**FLAT, "hierarchy__tree": "((2,2),(2,3))"},
                "devices' time": {**FLAT, "devices__preset": "hierfavg", "devices__time_rounds": True},
                "best models": {"checkpoint__models": "best"},
            }.items()
        ),
    ],
)
def test_a_round_that_becomes_the_last_is_measured_as_a_planned_one(tmp_path, hook, changes):
    """Models, rows and confusion: evaluate.every and personal.* promise them in the last round."""
    given = {**PLANNED, **changes}
    planned = simulate(small_config(tmp_path / "planned", **given), terminal=io.StringIO())
    ends = Ends(hook)
    config = small_config(tmp_path / "ended", **{**given, "num_server_rounds": 9})
    ended = simulate(config, callbacks=[ends], terminal=io.StringIO())
    assert (planned.status, ended.status) == ("completed", "completed"), (planned.reason, ended.reason)
    assert ended.manifest["stopped"]["after_round"] == 2
    assert ended.rounds["test_accuracy_mean"][-1] is not None
    assert comparable(ended.folder) == comparable(planned.folder)
    assert further_tables(ended.folder) == further_tables(planned.folder)
    files = {str(p.relative_to(run)) for run in (planned.folder, ended.folder) for p in run.rglob("models-*")}
    assert all((planned.folder / name).is_file() and (ended.folder / name).is_file() for name in files)
    assert len(ends.told) == 2  # once per round


def test_a_run_without_a_reason_to_end_is_not_measured_more_often(tmp_path):
    ends = Ends("end_round")
    config = small_config(tmp_path, **{**PLANNED, **OPEN, "num_server_rounds": 1})
    run = simulate({**config, "num-server-rounds": 3}, callbacks=[Ends("no_hook")], terminal=io.StringIO())
    assert [value is None for value in run.rounds["test_accuracy_mean"]] == [True, True, False]
    assert ends.told == []
