"""Whole private runs: what they say, record and count, also where they go on."""

import io
import json
import math

import numpy as np
import pytest
import torch

from fedge import simulate
from fedge.algorithm import Algorithm, Sent
from fedge.clustering import CloudPart
from fedge.config.registers.option import ConfigError
from fedge.config.sections.privacy import PrivacyConfig
from fedge.privacy.account import Account
from fedge.states.checkpoint import newest_valid_checkpoint

TINY = {
    "data.path": "synthetic", "train.model": "linear", "train.local-epochs": 1, "seed": 5,
    "scaffold.enabled": False, "privacy.kind": "client-adaptive", "privacy.noise-multiplier": 0.1,
    "privacy.clip-norm": 0.5, "hierarchy.leaf-rounds": 2, "num-server-rounds": 3, "run-name": "private",
    "report": False,
}  # fmt: skip
SPENT = Account(PrivacyConfig(kind="client-adaptive", noise_multiplier=0.1), [(3, 3)])


def carry_out(folder, **changes):
    """The run, as it is read, and what was said on the terminal."""
    terminal = io.StringIO()
    return simulate({**TINY, "runs-dir": str(folder), **changes}, terminal=terminal), terminal.getvalue()


class Polls(CloudPart):
    """A method of a user's own: it lets clients score every leaf's model, and groups by the scores."""

    def ask(self, cloud):
        return [{"polled": model} for model in cloud.models]

    def group(self, cloud):
        scores = cloud.answers.accuracies["polled"]
        return [int(np.nanmean(scores[cloud.answers.leaf_of == leaf]) > 0.5) for leaf in range(3)]


class Gossips(Algorithm):
    """A client of a user's own that sends an array beside its model, without any noise."""

    def train(self, client):
        return Sent(client.fit(), arrays={"mood": client.x.mean(dim=0).numpy()})


def spent(run):
    return run.rounds["epsilon_spent"].to_list()


def test_a_run_says_what_it_spent_and_what_is_not_covered(tmp_path):
    run, said = carry_out(tmp_path, report=True)
    assert run.status == "completed"
    assert spent(run) == [SPENT.spent(2), SPENT.spent(4), SPENT.spent(6)]
    lines = said.splitlines()
    (first,) = (line for line in lines if line.startswith("note: privacy is central"))
    (last,) = (line for line in lines if line.startswith("note: privacy: "))
    for line in (first, last):
        assert "mean and std of raw windows (data.normalize)" in line
        assert "scores by which gates decide (gate.enabled)" in line
    assert f"epsilon {SPENT.spent(6):.4g} at delta 1e-05 was spent in 6 leaf rounds" in last
    manifest = json.loads((run.folder / "manifest.json").read_text())
    assert last.removeprefix("note: ") in manifest["remarks"]
    assert manifest["privacy"]["accountant"].startswith("dp-accounting ")
    page = (run.folder / "report.html").read_text()
    assert "Privacy spent" in page
    assert "mean and std of raw windows (data.normalize)" in page


def test_a_run_that_goes_on_goes_on_counting(tmp_path):
    """All rows are those of a run without a break; the norm, which moves all the time, is kept, too."""
    whole, _ = carry_out(tmp_path / "whole")
    half, _ = carry_out(tmp_path / "half", **{"num-server-rounds": 1})
    assert spent(half) == spent(whole)[:1]
    both, said = carry_out(tmp_path / "half", resume=str(half.folder))
    assert spent(both) == spent(whole)
    assert f"was spent in {3 * 2} leaf rounds" in said
    assert both.rounds.drop("seconds").equals(whole.rounds.drop("seconds"))
    final = [(run.folder / "checkpoints" / "final.safetensors").read_bytes() for run in (whole, both)]
    assert final[0] == final[1]


def test_rounds_that_fine_tune_are_counted(tmp_path):
    """Two leaf rounds a global round, and three more in the last."""
    run, said = carry_out(tmp_path, **{"personal.leaf-rounds": 3})
    assert spent(run) == [SPENT.spent(2), SPENT.spent(4), SPENT.spent(9)]
    assert "scores by which fine-tuned models are served (personal.leaf-rounds)" in said


def test_without_privacy_nothing_is_said_or_counted(tmp_path):
    run, said = carry_out(tmp_path, **{"privacy.kind": "off", "num-server-rounds": 1})
    assert spent(run) == [None]
    assert not [line for line in said.splitlines() if "note: privacy" in line and "has no effect" not in line]
    assert "privacy" not in json.loads((run.folder / "manifest.json").read_text())


def test_a_run_with_the_noise_of_an_earlier_version_does_not_go_on(tmp_path, monkeypatch):
    """Its checkpoints count no releases; that they do not is made so here, as it was then."""
    run, _ = carry_out(tmp_path, **{"num-server-rounds": 1})
    checkpoint, _ = newest_valid_checkpoint(run.folder / "checkpoints")
    facts = {name: fact for name, fact in checkpoint.facts["strategy"].items() if name != "releases"}
    monkeypatch.setitem(checkpoint.facts, "strategy", facts)
    monkeypatch.setattr(
        "fedge.run.preparation.resume.newest_valid_checkpoint", lambda *_, **__: (checkpoint, [])
    )
    with pytest.raises(ConfigError, match="of an earlier Fedge with another one; start a new run"):
        carry_out(tmp_path, resume=str(run.folder))


def test_noise_of_the_system_is_said_and_no_run_goes_on_with_it(tmp_path):
    """Rounds that are done again would spend anew; two runs with one seed differ."""
    changes = {"privacy.noise-source": "system", "num-server-rounds": 1}
    models = []
    for name in ("a", "b"):
        run, said = carry_out(tmp_path / name, **changes)
        assert "noise is of the system's cryptographic generator, so no other run has these bits" in said
        assert json.loads((run.folder / "manifest.json").read_text())["privacy"]["noise_source"] == "system"
        models.append(
            sorted(file.read_bytes() for file in (run.folder / "checkpoints").rglob("*.safetensors"))
        )
    assert models[0] != models[1] != []
    with pytest.raises(ConfigError, match=r"resume needs privacy\.noise-source seed, because a round of"):
        carry_out(tmp_path / "b", resume=str(run.folder), **{**changes, "num-server-rounds": 2})


def test_what_a_method_of_a_user_asks_clients_is_said(tmp_path):
    """Scores that it asks for stand in the list of this run alone, with the option that they decide."""
    said = {}
    for name in (Polls, None):
        run = simulate(
            {**TINY, "runs-dir": str(tmp_path), "run-name": "", "num-server-rounds": 1},
            grouping=name, terminal=io.StringIO(),
        )  # fmt: skip
        said[name] = json.loads((run.folder / "manifest.json").read_text())["privacy"]["not_covered"]
    scores = "losses and scores of models that the method asks about, by which leaves are grouped"
    assert f"{scores} (cluster.method)" in said[Polls]
    assert not any(scores in line for line in said[None])


def test_what_a_method_of_a_user_sends_without_noise_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"noises the model alone, but .*Gossips also sends .*another"):
        simulate({**TINY, "runs-dir": str(tmp_path)}, algorithm=Gossips)
    assert not (tmp_path / "private").exists()
    plain = {**TINY, "runs-dir": str(tmp_path), "privacy.kind": "off"}
    run = simulate(plain, algorithm=Gossips, terminal=io.StringIO())
    assert run.status == "completed"


def test_clients_that_are_not_drawn_afresh_are_taken_to_train_in_every_round(tmp_path):
    """Uniform draws of one in nine spend less; who is asked in turns is known to an adversary."""
    changes = {"hierarchy.num-servers": 1, "hierarchy.participation": "1", "privacy.kind": "client-fixed"}
    changes |= {"privacy.noise-multiplier": 4.0, "hierarchy.leaf-rounds": 1}
    named = PrivacyConfig(kind="client-fixed", noise_multiplier=4.0)
    drawn, everybody = (Account(named, [(count, 9)]).spent(3) for count in (1, 9))
    assert drawn < everybody
    uniform, _ = carry_out(tmp_path / "uniform", **changes)
    in_turns, _ = carry_out(tmp_path / "turns", **changes, **{"hierarchy.selection": "round-robin"})
    assert (spent(uniform)[-1], spent(in_turns)[-1]) == (drawn, everybody)


class Two(torch.nn.Module):
    """Two layers without BatchNorm, whose variances bear no noise."""

    def __init__(self, input_shape, classes):
        super().__init__()
        self.body = torch.nn.Linear(math.prod(input_shape), 4)
        self.head = torch.nn.Linear(4, classes)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x.flatten(1))))


class SendsHead(Algorithm):
    """A client of a user's own that keeps all but its last layer."""

    def train(self, client):
        return Sent(client.fit(), only=client.head)


FINE_TUNED = {"personal.leaf-rounds": 1}
CLOCK = {
    "asynchrony.rule": "fedbuff", "asynchrony.rule-args.buffer": 2, "gate.enabled": False,
    "hierarchy.leaf-rounds": 1,
}  # fmt: skip


@pytest.mark.extended
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("server-fixed", {}), ("client-fixed", FINE_TUNED), ("client-adaptive", {}), ("local", {}),
        ("server-adaptive", FINE_TUNED), ("server-fixed", CLOCK), ("client-fixed", CLOCK), ("local", CLOCK),
    ],
)  # fmt: skip
@pytest.mark.parametrize("algorithm", ["fedbabu", f"{__name__}:SendsHead"])
def test_noise_is_on_what_clients_send_alone(tmp_path, kind, more, algorithm):
    """Noise on the rest would change a model of which its method says that it stays as it began."""
    shared = {"train.model": f"{__name__}:Two", "train.algorithm": algorithm, "num-server-rounds": 2}
    off = {"privacy.kind": "off", "num-server-rounds": 1, "train.lr": 1e-30, "train.weight-decay": 0.0}
    first, _ = carry_out(tmp_path / "first", **{**shared, "hierarchy.leaf-rounds": 1, **off})
    run, _ = carry_out(tmp_path / "noisy", **{**shared, **more, "privacy.kind": kind})
    begun = first.models()[0]
    for served in run.models():
        moved = {name for name, array in served.items() if not np.array_equal(array, begun[name])}
        assert moved == {name for name in begun if name.startswith("head") == ("Head" in algorithm)}
