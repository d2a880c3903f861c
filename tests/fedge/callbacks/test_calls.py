"""Callbacks in whole runs in this process; both engines are in tests/runs/use/test_examples.py."""

import io
import json
import sys
from dataclasses import FrozenInstanceError

import pytest
from small_runs import small_config

from fedge import simulate
from fedge.callbacks import Callback, EarlyStopping, TimeBudget
from fedge.callbacks.calls import Callbacks, Stop
from fedge.cli import main
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError

HOOKS = ["begin_run", "begin_round", "begin_leaf_round", "end_leaf_round", "end_round", "end_run"]


class Watching:
    """Notes what it is told; no subclass of Callback."""

    def __init__(self, stop_in=None):
        self.calls = []
        self.stop_in = stop_in

    def _note(self, hook, told):
        self.calls.append((hook, told))
        return f"enough,\n of {hook}" if hook == self.stop_in else None


for _hook in HOOKS:
    setattr(Watching, _hook, lambda self, told, hook=_hook: self._note(hook, told))


def carry_out(config, *callbacks, **changes):
    terminal = io.StringIO()
    run = simulate({**config, **changes}, callbacks=callbacks, terminal=terminal)
    return run, terminal.getvalue()


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return small_config(tmp_path_factory.mktemp("callbacks"), num_server_rounds=3)


@pytest.fixture(scope="module")
def plain(config):
    return carry_out(config)[0]


@pytest.mark.slow
def test_hooks_come_in_order_and_change_nothing(config, plain):
    watching = Watching()
    run, _ = carry_out(config, watching, **{"hierarchy.leaf-rounds": 1})
    assert [hook for hook, _ in watching.calls] == [HOOKS[0], *HOOKS[1:5] * 3, HOOKS[5]]
    name = "checkpoints/final.safetensors"
    assert (run.folder / name).read_bytes() == (plain.folder / name).read_bytes()
    told = dict(watching.calls)  # the last of each
    begun, ended, leaf, last = (told[HOOKS[i]] for i in (0, 4, 3, 5))
    assert (begun.num_rounds, begun.rounds_done, begun.clients_per_leaf) == (3, 0, (3, 3, 3))
    assert (begun.folder, begun.config["train.model"]) == (run.folder, "linear")
    assert ended.numbers["test_accuracy_mean"] == run.rounds["test_accuracy_mean"][-1]
    assert [row["leaf"] for row in ended.leaves] == [0, 1, 2]
    assert len(ended.clients) == 9
    assert (leaf.global_round, leaf.leaf_round, leaf.replies) == (3, 3, 9)
    assert list(leaf.train_loss) == list(range(9))
    assert dict(leaf.failures) == {}
    assert (last.status, last.global_round, last.reason) == ("completed", 3, "")


def test_what_is_shown_cannot_be_written_to(config):
    watching = Watching()
    carry_out(config, watching, **{"num-server-rounds": 1})
    for _, told in watching.calls:
        with pytest.raises(FrozenInstanceError):
            told.global_round = 7
    ended = dict(watching.calls)["end_round"]
    with pytest.raises(TypeError):
        ended.numbers["seconds"] = 0.0
    with pytest.raises(TypeError):
        dict(watching.calls)["begin_run"].config["seed"] = 0


@pytest.mark.slow
@pytest.mark.parametrize("hook", HOOKS[:5])
def test_any_of_them_may_end_the_run_after_a_whole_round(config, hook):
    run, shown = carry_out(config, Watching(hook), **{"report": hook == "end_round"})
    line = f"stopped after global round 1 of 3 by {__name__}:Watching: enough, of {hook}"
    assert (run.status, run.exit_code, len(run.rounds)) == ("completed", 0, 1)
    assert run.manifest["stopped"] == {
        "by": f"{__name__}:Watching",
        "after_round": 1,
        "reason": f"enough, of {hook}",
    }
    assert line in shown
    assert run.manifest["remarks"][-1] == line
    assert len(run.models()) == 3
    if hook == "end_round":
        assert line in (run.folder / "report.html").read_text()


PRIVATE = {
    "privacy.kind": "client-fixed", "privacy.clip-norm": 1.0, "privacy.noise-multiplier": 1.0,
    "hierarchy.num-servers": 1, "scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False,
}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [PRIVATE,
     pytest.param({"evaluate.every": 2, "gate.enabled": False}, marks=pytest.mark.extended),
     pytest.param({"partition.unseen-clients": 1, "personal.leaf-rounds": 1}, marks=pytest.mark.extended)],
    ids=["private", "seldom evaluated", "unseen clients"],
)  # fmt: skip
def test_what_is_told_is_what_the_tables_have(config, changes):
    """Every column of every row, so that a budget of any column is one of the column shown."""
    watching = Watching()
    run, _ = carry_out(config, watching, **changes)
    rounds = [told for hook, told in watching.calls if hook == "end_round"]
    for table, told in (
        (run.rounds, [each.numbers for each in rounds]),
        (run.leaves, [row for each in rounds for row in each.leaves]),
        (run.clients, [row for each in rounds for row in each.clients]),
    ):
        mine, theirs = (
            [{k: None if v == "" else v for k, v in row.items()} for row in rows]
            for rows in (table.rows(named=True), told)
        )
        assert mine == theirs


def test_a_budget_of_epsilon_ends_a_private_run(config):
    pytest.importorskip("dp_accounting")
    spent = carry_out(config, **PRIVATE)[0].rounds["epsilon_spent"].to_list()
    budget = {"callbacks": "budget", "callbacks-args.budget.column": "epsilon_spent"}
    run, _ = carry_out(config, **PRIVATE, **budget, **{"callbacks-args.budget.most": spent[1]})
    assert run.rounds["epsilon_spent"].to_list() == spent[:2]
    assert run.manifest["stopped"]["by"] == "budget"


def test_the_first_reason_counts(config):
    first, second = Watching("begin_round"), Watching("end_round")
    run, _ = carry_out(config, first, second)
    assert run.manifest["stopped"]["reason"] == "enough, of begin_round"
    assert run.config["callbacks"] == f"{__name__}:Watching,{__name__}:Watching.2"


class Counting(Callback):
    """Ends the run at the third round that it sees, whatever happens in between."""

    def __init__(self, limit=3):
        self.limit = limit
        self.seen = 0

    def end_round(self, round_):
        self.seen += 1
        return f"{self.seen} rounds" if self.seen == self.limit else None


def test_what_a_callback_remembers_survives(config):
    """Attributes that have changed come back; those that were given do not, so another limit counts."""
    changes = {"run-name": "counted", "num-server-rounds": 2}
    first, _ = carry_out(config, Counting(), **changes)
    assert first.status == "completed"
    going_on = {**config, "num-server-rounds": 9, "resume": str(first.folder)}
    again = simulate(going_on, callbacks=[Counting(5)], terminal=io.StringIO())
    assert (len(again.rounds), again.manifest["stopped"]["reason"]) == (5, "5 rounds")
    terminal = io.StringIO()
    simulate(going_on, callbacks=[Counting(5)], terminal=terminal)
    assert "is complete: stopped after global round 5 of 9 by" in terminal.getvalue()
    onward = simulate({**going_on, "num-server-rounds": 6}, terminal=io.StringIO())
    assert (len(onward.rounds), "stopped" in onward.manifest) == (6, False)


class PerClient(Callback):
    """Ends the run once it has seen client 1 in three rounds: a table by number, and pairs of numbers."""

    def __init__(self):
        self.rounds_of, self.pairs = {}, []

    def end_round(self, round_):
        for row in round_.clients:
            self.rounds_of[row["client"]] = self.rounds_of.get(row["client"], 0) + 1
        self.pairs.append((round_.global_round, len(self.rounds_of)))
        return f"seen: {self.pairs}" if self.rounds_of[1] == 3 else None


def test_tables_by_number_and_pairs_survive(config):
    first, _ = carry_out(config, PerClient(), **{"num-server-rounds": 2})
    going_on = {**config, "num-server-rounds": 9, "resume": str(first.folder)}
    again = simulate(going_on, callbacks=[PerClient()], terminal=io.StringIO())
    assert again.manifest["stopped"]["reason"] == "seen: [(1, 9), (2, 9), (3, 9)]"


class Losing(Callback):
    """Keeps what does not come back, once made anew at every beginning, and once not."""

    def __init__(self):
        self.seen = set()

    def begin_run(self, run):
        self.opened = {1, 2}

    def end_round(self, round_):
        self.seen.add(round_.global_round)


def test_what_would_be_lost_is_said_once(config, caplog):
    run, _ = carry_out(config, Losing())
    (line,) = [words for words in caplog.messages if "is lost when" in words]
    assert "Losing changes seen (set), which is lost when the run resumes" in line
    assert line in (run.folder / "run.log").read_text()
    caplog.clear()
    carry_out(config, Keeping(), PerClient(), Counting())
    assert "is lost when" not in caplog.text


class Keeping(Callback):
    """Keeps what JSON cannot hold, and says how."""

    def __init__(self):
        self.seen = set()

    def end_round(self, round_):
        self.seen.add(round_.global_round)
        return "all seen" if self.seen == {1, 2, 3} else None

    def state_dict(self):
        return {"seen": sorted(self.seen)}

    def load_state_dict(self, state):
        self.seen = set(state["seen"])


def test_a_state_of_its_own_survives(config):
    first, _ = carry_out(config, Keeping(), **{"num-server-rounds": 2})
    going_on = {**config, "num-server-rounds": 9, "resume": str(first.folder)}
    again = simulate(going_on, callbacks=[Keeping()], terminal=io.StringIO())
    assert again.manifest["stopped"]["after_round"] == 3


@pytest.mark.parametrize(
    "odd",
    [
        {"states": [{"end_round": 3}]}, {"states": [{"__class__": "x"}]}, {"states": [5]}, {"states": []},
        {"names": 3}, {"stop": {"by": "x", "global_round": "1", "reason": "y"}}, {"stop": [1]},
        {"stop": {"reason": "y"}},
    ],
    ids=str,
)  # fmt: skip
def test_a_state_that_no_run_has_kept_is_not_taken_back(odd):
    """A forged checkpoint with fitting sums exchanges no method; a stop of another form ends no run."""
    made = Callbacks(from_run_config({"callbacks": "early-stopping"}))
    kept = json.loads(json.dumps(made.facts()))
    made.restore({**kept, "stop": {"by": "x", "global_round": 1, "reason": "y"}})
    assert made.stop == Stop("x", 1, "y")
    with pytest.raises((ValueError, TypeError, LookupError)):
        made.restore({**kept, **odd})


class Failing(Callback):
    """Raises in one hook, and says so in two lines."""

    def __init__(self, hook):
        def fail(_):
            raise KeyError("nothing\nhere")

        setattr(self, hook, fail)


@pytest.mark.parametrize("hook", HOOKS)
def test_one_that_raises_is_one_line_and_the_run_can_go_on(config, plain, hook, monkeypatch):
    monkeypatch.delenv("SEED", raising=False)
    run, shown = carry_out(config, Failing(hook))
    assert (run.status, run.exit_code) == ("failed", 4)
    assert run.reason.startswith(f"callback {__name__}:Failing failed in {hook}")
    assert "KeyError: " in run.reason
    assert f"{__file__}, line " in run.reason
    assert "\n" not in run.reason
    assert "resume with: fedge resume" in shown
    assert main(["resume", str(run.folder), "-c", "callbacks=''"]) == 0
    name = "checkpoints/final.safetensors"
    assert (run.folder / name).read_bytes() == (plain.folder / name).read_bytes()


class Odd(Callback):
    """Returns what is no reason."""

    def end_round(self, round_):
        return True


class Nothing:
    """Has no method that would be called."""


def test_what_is_no_reason_and_what_is_no_callback(config):
    run, _ = carry_out(config, Odd())
    assert "must return None or the reason" in run.reason
    assert "but in end_round of global round 1 it returned True; fix it" in run.reason
    with pytest.raises(ConfigError, match=r":Nothing must have one of begin_run, "):
        simulate(config, callbacks=[Nothing()], terminal=io.StringIO())


def test_a_list_in_a_file_and_arguments_by_name(config, tmp_path, monkeypatch):
    """As a table of a file; the state of both is in the checkpoint."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_watch.py").write_text(
        "from fedge.callbacks import Callback\n"
        "class Watch(Callback):\n"
        "    def __init__(self, rounds): self.rounds = rounds\n"
        "    def end_round(self, round_):\n"
        "        return 'that will do' if round_.global_round == self.rounds else None\n"
    )
    (tmp_path / "watch.toml").write_text(
        'callbacks = ["early-stopping", "my_watch:Watch"]\n'
        "[callbacks-args]\n"
        'early-stopping = { patience = 8, "min-delta" = 0.1 }\n'
        '"my_watch:Watch" = { rounds = 2 }\n'
    )
    changes = [f"{key}={json.dumps(value)}" for key, value in config.items()]
    words = ["run", "-c", " ".join([*changes, "run-name='listed'"]), "-c", "watch.toml"]
    assert main(words) == 0
    folder = next((tmp_path / config["runs-dir"]).glob("listed"))
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["config"]["callbacks"] == "early-stopping,my_watch:Watch"
    assert manifest["stopped"] == {"by": "my_watch:Watch", "after_round": 2, "reason": "that will do"}
    assert manifest["parts"]["callbacks[1]"]["name"] == "my_watch:Watch"
    sys.modules.pop("my_watch")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"callbacks": "early-stoping"}, "must be one of early-stopping, .*did you mean early-stopping"),
        ({"callbacks": "budget,budget"}, "callbacks must differ"),
        ({"callbacks": "budget"}, "must be given column and most, .* set callbacks-args.budget.column and"),
        ({"callbacks-args.budget.most": 3}, "must belong to the callbacks named, but 'budget'"),
        ({"callbacks": "time-budget", "callbacks-args.time-budget": 3}, "time-budget must be a table"),
        ({"callbacks": "time-budget", "callbacks-args.time-budget.most": -3}, "must be a number above 0"),
        ({"callbacks": "early-stopping", "callbacks-args.early-stopping.patiense": 3}, "mean patience"),
        ({"callbacks": "no_such:Thing"}, "callbacks no_such:Thing cannot be imported"),
        ({"callbacks": [3]}, "callbacks must be a string"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_starts(config, changes, words):
    with pytest.raises(ConfigError, match=words) as caught:
        simulate({**config, **changes}, terminal=io.StringIO())
    assert "\n" not in str(caught.value)


def test_objects_of_two_runs_do_not_mix(config):
    watch = EarlyStopping("test_loss_mean", patience=1, min_delta=100)
    found = [carry_out(config, watch, TimeBudget(1e6))[0].manifest["stopped"]["after_round"] for _ in "ab"]
    assert found == [2, 2]
