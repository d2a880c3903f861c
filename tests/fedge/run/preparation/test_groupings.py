"""Groupings and signals of the user's, tried before the run: what would fail it later is refused at once."""

import io

import numpy as np
import pytest
from small_runs import small_config

from fedge import simulate
from fedge.algorithm import Algorithm, LeafPart, Sent
from fedge.clustering import CloudPart, Family, method
from fedge.clustering.likeness.evidence import NotComparable
from fedge.clustering.signals import signal
from fedge.config.registers.option import ConfigError


def typo(evidence, config, before):
    return [0] * len(evidence.modells)


def later(evidence, config, before):
    return [0] * len(evidence.models) if before is None else before[:1]


def without_starts(evidence, config, before):
    return [0] * len(evidence.starts)


class Keeps(CloudPart):
    def group(self, cloud):
        cloud.memory["words"] = "no array"
        return [0] * len(cloud.models)


class KeepsInObject(CloudPart):
    """Would answer otherwise after a stop."""

    def __init__(self):
        self.old = None

    def group(self, cloud):
        moved = 0.0 if self.old is None else float(((cloud.vectors - self.old) ** 2).sum())
        self.old = cloud.vectors
        share = np.full((len(cloud.models), 1), 0.5 / (1 + moved))
        return Family(np.hstack([share, 1 - share]))


class KeepsWhatIsNoState(KeepsInObject):
    """A cache: what is in it follows from what the part is given."""

    def group(self, cloud):
        self.old = cloud.vectors
        return super().group(cloud)


class DrawsGlobally(CloudPart):
    def group(self, cloud):
        share = np.random.rand(len(cloud.models), 1)  # noqa: NPY002
        return Family(np.hstack([share, 1 - share]))


def lopsided(evidence):
    return np.triu(np.ones((len(evidence.models),) * 2))


@method(lambda _: frozenset({"starts"}))
def well(evidence, config, before):
    assert (before is None) == (evidence.global_round == 1)
    assert np.abs(evidence.updates).max() > 0
    return [0] * len(evidence.models)


class Family1(CloudPart):
    def group(self, cloud):
        assert cloud.memory.get("rounds", 0) == cloud.global_round - 1
        cloud.memory["rounds"] = cloud.global_round
        return Family(np.ones((len(cloud.models), 1)))


def never(evidence, config, before):
    raise NotComparable("too early")


@method(lambda _: frozenset({"cross-losses"}))
def by_losses(evidence, config, before):
    return (evidence.cross.losses.mean(axis=1) > 1e9).astype(int)


@method(lambda _: frozenset({"cross-losses"}))
def losses_by_typo(evidence, config, before):
    return (evidence.cross.loses.mean(axis=1) > 1e9).astype(int)


@method(lambda _: frozenset({"dispersion"}))
def spread_by_typo(evidence, config, before):
    return evidence.dispersion.astypo(int)


class AsksByTypo(CloudPart):
    def ask(self, cloud):
        return [{"mine": model} for model in cloud.modells]

    def group(self, cloud):
        return [0] * len(cloud.models)


class AsksTooFew(AsksByTypo):
    def ask(self, cloud):
        return [{"mine": cloud.models[0]}]


class ReadsByTypo(AsksByTypo):
    def ask(self, cloud):
        return [{"mine": model} for model in cloud.models]

    def group(self, cloud):
        assert cloud.answers.losses["mine"].shape == cloud.answers.leaf_of.shape
        return [int(cloud.answers.losses["yours"][0])] * len(cloud.models)


class Asks(ReadsByTypo):
    def group(self, cloud):
        assert np.isfinite(cloud.answers.losses["mine"]).all()
        assert cloud.answers.confusions["mine"].shape[1:] == cloud.answers.confusions["mine"].shape[2:0:-1]
        return [0] * len(cloud.models)


@signal("starts")
def alike(evidence):
    return evidence.cosines


TREE = {
    "hierarchy.tree": "2x3x2", "clients": 12, "partition.kind": "iid", "cluster.tiers": "0,1",
    "gate.enabled": False, "scaffold.enabled": False,
}  # fmt: skip
CLOCK = {"asynchrony.rule": "fedbuff", "scaffold.enabled": False, "gate.enabled": False}


def begun(tmp_path, part, option="cluster.method", **more):
    """A run of two rounds with a part of this file."""
    config = {**small_config(tmp_path), **more, option: f"{__name__}:{part}"}
    return simulate(config, terminal=io.StringIO())


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("typo", "failed: AttributeError: .*modells.*test_groupings"),
        ("later", "a whole number for each of 3 leaves"),
        ("without_starts", "failed: TypeError"),
        ("Keeps", "memory of the cloud"),
        ("KeepsInObject", "must keep its state in cloud.memory, but keeps some in its object"),
        ("DrawsGlobally", "must follow from the seed, but draws from the global stream of numpy"),
        ("losses_by_typo", "failed: AttributeError: .*loses"),
        ("spread_by_typo", "failed: AttributeError: .*astypo"),
        ("AsksByTypo", "failed: AttributeError: .*modells"),
        ("AsksTooFew", "must ask with a mapping role → model for each of 3 leaves"),
        ("ReadsByTypo", "failed: KeyError: .*yours"),
    ],
)
def test_a_grouping_that_would_fail_is_refused_before_the_run(tmp_path, part, words):
    with pytest.raises(ConfigError, match=f"cluster.method .*{part}.*{words}") as caught:
        begun(tmp_path, part)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("way", [TREE, CLOCK], ids=["tree", "clock"])
@pytest.mark.parametrize("part", ["typo", "losses_by_typo"])
def test_it_is_refused_in_trees_and_on_the_clock_too(tmp_path, part, way):
    with pytest.raises(ConfigError, match=rf"cluster.method .*{part}.* failed: AttributeError"):
        begun(tmp_path, part, **way)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("way", [TREE, CLOCK], ids=["tree", "clock"])
def test_one_that_works_in_trees_and_on_the_clock_is_not_in_its_own_way(tmp_path, way):
    assert begun(tmp_path, "by_losses", **way).status == "completed"


def test_a_signal_that_would_fail_is_refused_before_the_run(tmp_path):
    with pytest.raises(ConfigError, match=r"cluster\.signal .*lopsided must return a symmetric"):
        begun(tmp_path, "lopsided", "cluster.signal")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("part", ["well", "Family1", "KeepsWhatIsNoState", "never", "by_losses", "Asks"])
def test_a_grouping_that_works_is_not_in_its_own_way(tmp_path, part):
    assert begun(tmp_path, part).status == "completed"


def test_a_signal_that_works_is_not_in_its_own_way(tmp_path):
    assert begun(tmp_path, "alike", "cluster.signal").status == "completed"


def heads(evidence):
    """Distances of the last layers' weights."""
    last = [model[evidence.parameter_names[-2]].ravel() for model in evidence.models]
    return -np.abs(np.subtract.outer([one.sum() for one in last], [one.sum() for one in last]))


def all_one(evidence):
    """Says the same of any models: no entry of them matters."""
    return np.ones((len(evidence.models),) * 2)


class SendsBase(Algorithm):
    """A head of its own, by what it sends alone."""

    def train(self, client):
        return Sent(client.fit(), only=client.base)


class SendsHead(Algorithm):
    def train(self, client):
        return Sent(client.fit(), only=client.head)


class MakesHead(LeafPart):
    def combine(self, leaf):
        return {name: array + leaf.turn.leaf for name, array in leaf.mean.items()}


class SendsBaseToMaker(SendsBase):
    leaf = MakesHead


class TrainsAndSendsBase(Algorithm):
    """The base alone is trained, against the head of the leaf's model."""

    def train(self, client):
        return Sent(client.fit(only=[n for n in client.parameters if n not in client.head]), only=client.base)


OWN = f"{__name__}:"


@pytest.mark.parametrize(
    ("algorithm", "signal_", "more", "is_vain"),
    [
        ("fedper", "weights", {}, True),
        ("fedrep", "update-head", {}, True),
        ("fedbabu", OWN + "heads", {}, True),
        (OWN + "SendsBase", "weights", TREE, True),
        (OWN + "SendsBase", "weights", CLOCK, True),
        ("fedper", "weights", {"cluster.method": "alone"}, False),
        ("fedper", "weights", {"cluster.enabled": False}, False),
        ("fedper", "weights", {"hierarchy.num-servers": 1}, False),
        ("fedper", "update", {}, False),
        ("fedper", "cross-loss", {}, False),
        ("fedper", OWN + "alike", {}, False),
        ("fedper", OWN + "all_one", {}, False),
        ("ditto", "weights", {}, False),
        ("fedavg", "weights", {"uplink.clients": "top-k"}, False),
        (OWN + "SendsHead", "weights", {}, False),
        (OWN + "SendsBaseToMaker", "weights", {}, False),
    ],
)
def test_a_signal_of_what_stays_at_clients_is_told_at_the_start_and_the_end(
    tmp_path, algorithm, signal_, more, is_vain
):
    config = small_config(tmp_path, num_server_rounds=1, scaffold__enabled=False, train__model="mlp-tiny")
    chosen = {"train.algorithm": algorithm, "cluster.signal": signal_}
    run = simulate({**config, **more, **chosen}, terminal=(shown := io.StringIO()))
    assert run.status == "completed"
    note = f"note: cluster.signal {signal_} compares only entries of the model that clients under"
    places = [shown.getvalue().find(note), shown.getvalue().rfind(note)]
    assert (places[0] < shown.getvalue().find("round 1/1") < places[1]) if is_vain else places == [-1, -1]


@pytest.mark.parametrize(
    ("algorithm", "kept", "more"),
    [
        ("fedper", "head.weight", {}),
        ("fedrep", "head.weight", TREE),
        (OWN + "SendsBase", "head.weight", CLOCK),
        (OWN + "SendsHead", "hidden.weight", {"hierarchy.num-servers": 1, "cluster.enabled": False}),
        (OWN + "TrainsAndSendsBase", "", {}),
        (OWN + "SendsBaseToMaker", "", {}),
        ("fedbabu", "", {}),
        ("ditto", "", {}),
        ("fedavg", "", {"uplink.clients": "sign"}),
    ],
)
def test_layers_that_clients_train_for_themselves_alone_are_told_beside_the_scores(
    tmp_path, algorithm, kept, more
):
    """The leaf's model has them untrained, and so do gates: 6 % where clients' own models have 78 %."""
    config = small_config(tmp_path, num_server_rounds=1, scaffold__enabled=False, train__model="mlp-tiny")
    run = simulate({**config, **more, "train.algorithm": algorithm}, terminal=(shown := io.StringIO()))
    assert run.status == "completed"
    lines = [line for line in shown.getvalue().splitlines() if "but do not send it" in line]
    assert len(lines) == (2 if kept else 0)
    assert all(kept in line for line in lines)
    own = "client_models.csv" if algorithm in ("fedper", "fedrep") else "models(client)"
    assert all(own in line for line in lines)
