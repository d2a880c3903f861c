"""Every option either has an effect in every run, or stands in the table with what it needs."""

import json
from pathlib import Path

import pytest
from daily import daily
from small_runs import carry_out, small_config
from torch.nn.functional import cross_entropy

from fedge.config.effects import EFFECTS, effects_twice, options_without_effect
from fedge.config.flat import from_run_config, options
from fedge.config.registers.groupings import GATES, GROUPINGS
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import ALGORITHMS, CLOUD, PARTITIONS, RULES
from fedge.config.registers.traits import PROXIMAL
from fedge.run.preparation.parts import refuse_parts_that_do_not_fit

TESTS = Path(__file__).parents[1]

GROUPS = {"scenario": "gain", "hierarchy.num-servers": 3}
AUTO = {
    "cluster.method": "agglomerative", "cluster.signal": "affinity", "cluster.count": "auto",
    "cluster.patience": 2, "hierarchy.num-servers": 4,
}  # fmt: skip
NO_SCAFFOLD = {"scaffold.enabled": False}
CFL = {"cluster.method": "cfl", "cluster.method-args.still-below": 1e6, "cluster.method-args.pull-above": 0.0}
IFCA = {**NO_SCAFFOLD, "cluster.method": "ifca", "cluster.count": "2", "gate.enabled": False}
OFF = {"cluster.enabled": False}
EXACT = {"cluster.enabled": False, "gate.enabled": False}
TREE = {"hierarchy.tree": "1x3x3"}
FIXED = {**NO_SCAFFOLD, "privacy.kind": "server-fixed"}
ADAPTIVE = {**NO_SCAFFOLD, "privacy.kind": "server-adaptive", "privacy.noise-multiplier": 0.1}
APART = {"cluster.tau": 1.01}  # every leaf stays alone

CLOCK = {
    **NO_SCAFFOLD, "cluster.enabled": False, "gate.enabled": False, "hierarchy.num-servers": 1,
    "asynchrony.rule": "fedbuff", "asynchrony.rule-args": '{"buffer": 2}', "asynchrony.concurrency": 4,
    "asynchrony.evaluate-every-s": 1.0,
}  # fmt: skip
PIECES = {**CLOCK, "clients": 12, "devices.pieces": 2}
LEAVES = {
    **CLOCK, "hierarchy.num-servers": 3, "asynchrony.rule-args": '{"buffer": 1}',
    "asynchrony.cloud-delay-s": 0.01,
}  # fmt: skip
DEEP = {**LEAVES, "hierarchy.tree": "((3),(3,3))"}
ROUNDS = {**CLOCK, "asynchrony.rule": "fedavg", "asynchrony.rule-args": ""}

# key → a value that is not its default, where it has an effect, where it has none
CASES = {
    "scenario-groups": (3, GROUPS, {}),
    "scenario-sizes": ("1,2", GROUPS, {}),
    "scenario-from": (2, {**GROUPS, "num-server-rounds": 2}, {}),
    "scenario-until": (1, {**GROUPS, "num-server-rounds": 2}, {}),
    "scenario-moves": ("2:1", {**GROUPS, "num-server-rounds": 2}, {}),
    "data.guard-windows": (0, {"data.split": "blocks"}, {"data.split": "session"}),
    "data.synthetic-users": (12, {"data.path": "synthetic"}, {}),
    "partition.deal": ("7", {}, {"partition.kind": "iid"}),
    "train.local-epochs": (2, {}, {"train.local-steps": 3}),
    "train.momentum": (0.0, {}, {**NO_SCAFFOLD, "train.optimizer": "adam"}),
    "train.lr-decay": (0.5, {}, {"num-server-rounds": 1}),
    "train.label-smoothing": (0.3, {}, {"train.loss": f"{__name__}:own_loss", "train.kernel": "torch"}),
    "train.precision": ("tf32", {}, {"train.device": "cpu"}),
    "train.cuda-graph": ("off", {}, {"train.device": "cpu"}),
    "hierarchy.selection": ("round-robin", {"hierarchy.fraction-train": 0.4}, {}),
    "hierarchy.region-rounds": ("2", {"hierarchy.tree": "3x1x3"}, {}),
    "cluster.tiers": ("1", TREE, {**TREE, "cluster.enabled": False}),
    "gate.tiers": ("1", TREE, {**TREE, "gate.enabled": False}),
    "cloud.rule-tiers": (
        "1",
        {**NO_SCAFFOLD, **OFF, "hierarchy.tree": "3x3x1", "cloud.rule": "fedavgm", "num-server-rounds": 3},
        TREE,
    ),
    "scaffold.levels": (2, {"num-server-rounds": 3, "gate.enabled": False}, NO_SCAFFOLD),
    "cluster.regroup-every": (3, {"num-server-rounds": 7}, OFF),
    "cluster.tau": (1.01, {}, {"cluster.method": "alone"}),
    "cluster.signal": ("update", {**NO_SCAFFOLD, "cluster.tau": 0.98}, {"cluster.method": "alone"}),
    "cluster.method": ("alone", {}, OFF),
    "cluster.count": ("3", {"cluster.method": "agglomerative"}, {"cluster.method": "alone"}),
    "cluster.level": (0.5, {}, {}),
    "cluster.patience": (2, {**APART, "num-server-rounds": 1}, IFCA),
    "cluster.min-gain": (0.5, {}, {}),
    "cluster.probe-every": (1, {**APART, "num-server-rounds": 3}, {"cluster.method": "alone"}),
    "cluster.watch": (
        0.0,
        {**AUTO, "scenario": "label-permutation", "scenario-from": 3, "num-server-rounds": 3},
        {},
    ),
    "cluster.blend": (0.5, APART, OFF),
    "gate.min-gain": (1.0, {}, {"gate.enabled": False}),
    "gate.rule": ("paired", {"partition.deal": "sorted"}, {"gate.enabled": False}),
    "personal.layers": ("head", {}, {"cluster.method": "alone"}),
    "personal.every": (1, {"personal.leaf-rounds": 1}, {}),
    "personal.unseen-clients": ("same", {"partition.unseen-clients": 1, "personal.leaf-rounds": 1}, {}),
    "privacy.clip-norm": (0.01, FIXED, {}),
    "privacy.noise-multiplier": (2.0, FIXED, {}),
    "privacy.noise-source": ("system", FIXED, {}),
    "privacy.clip-quantile": (0.1, ADAPTIVE, {}),
    "privacy.clip-lr": (2.0, ADAPTIVE, {}),
    "privacy.epsilon": (0.5, {**NO_SCAFFOLD, "privacy.kind": "local"}, {}),
    "privacy.delta": (1e-3, {**NO_SCAFFOLD, "privacy.kind": "local"}, {}),
    "devices.pieces": (1, PIECES, {}),
    "devices.least-windows": (5, PIECES, CLOCK),
    "devices.preset": ("half-normal", CLOCK, {}),
    "devices.duration": ("any_case:own_duration", CLOCK, {}),
    "devices.availability": ("markov", CLOCK, {}),
    "devices.dropout": (0.5, CLOCK, {}),
    "devices.partial-work": (
        True,
        {**CLOCK, "devices.preset": "half-normal", "asynchrony.timeout-s": 0.5, "train.batch-size": 1},
        {},
    ),
    "uplink.servers": ("sign", EXACT, {**EXACT, "hierarchy.num-servers": 1}),
    "devices.traced": (2, CLOCK, {}),
    "devices.time-rounds": (True, {}, CLOCK),
    "devices.selection": ("without-reuse", CLOCK, {}),
    "devices.train-watts": (2.0, CLOCK, {}),
    "devices.radio-watts": (2.0, CLOCK, {}),
    "asynchrony.clock": ("real", CLOCK, {}),
    "asynchrony.replay": ("runs/there", CLOCK, {}),
    "asynchrony.concurrency": (3, CLOCK, {}),
    "asynchrony.refill": (3, CLOCK, ROUNDS),
    "asynchrony.timeout-s": (0.05, CLOCK, ROUNDS),
    "asynchrony.end-versions": (1, CLOCK, {}),
    "asynchrony.end-updates": (1, CLOCK, {}),
    "asynchrony.end-megabytes": (0.001, CLOCK, {}),
    "asynchrony.end-joules": (0.1, {**CLOCK, "devices.train-watts": 2.0}, {}),
    "asynchrony.max-staleness": (1, CLOCK, ROUNDS),
    "asynchrony.over-selection": (2.0, ROUNDS, CLOCK),
    "asynchrony.deadline-s": (0.1, ROUNDS, CLOCK),
    "asynchrony.evaluate-every-s": (0.5, CLOCK, {}),
    "asynchrony.leaf-link-megabytes-s": (0.001, CLOCK, {}),
    "asynchrony.cloud-link-megabytes-s": (0.001, LEAVES, CLOCK),
    "asynchrony.groups": ("0,1,1", LEAVES, {}),
    "asynchrony.cloud-rule": ("fedasync", LEAVES, CLOCK),
    "asynchrony.tiers": ('{"region": {"every": 2}}', DEEP, LEAVES),
    "asynchrony.cloud-every": (2, LEAVES, CLOCK),
    "asynchrony.cloud-delay-s": (0.3, LEAVES, CLOCK),
    "asynchrony.cloud-megabytes-s": (0.001, LEAVES, {**LEAVES, "asynchrony.cloud-delay-s": 0.0}),
    "checkpoint.keep": (1, {}, {"checkpoint.every": 0}),
}  # fmt: skip

# whose effect needs more than a run of seconds, or is no result; the test that shows it
SHOWN_ELSEWHERE = {
    "train.precision": "tests/fedge/training/test_gpu.py",
    "train.cuda-graph": "tests/fedge/training/test_cuda_graph.py",
    "cluster.level": "tests/fedge/clustering/deal_test/test_auto.py",
    "cluster.min-gain": "tests/runs/methods/test_cross_losses.py",
    "checkpoint.keep": "tests/fedge/states/test_checkpoint.py",
    "devices.availability": "tests/fedge/devices/test_procedure.py",
    "devices.traced": "tests/fedge/run/test_asynchronous.py",
    "asynchrony.clock": "tests/fedge/devices/timeline/test_real_arrivals.py",
    "asynchrony.replay": "tests/fedge/devices/timeline/test_real_arrivals.py",
    "devices.train-watts": "tests/fedge/devices/population/test_fleet.py",
    "devices.radio-watts": "tests/fedge/devices/population/test_fleet.py",
}

REFUSED = (
    "scaffold.levels",
    "cluster.probe-every",
    "asynchrony.tiers",
)  # the run would be taken for another one

ALWAYS = {
    "seed": 4, "num-server-rounds": 1, "clients": 6, "scenario": "gain", "hierarchy.num-servers": 2,
    "hierarchy.tree": "((4,3),(2))", "hierarchy.participation": "2,1,all",
    "hierarchy.mobility": f"{__name__}:all_change", "hierarchy.association": "label-balance",
    "hierarchy.clients-per-server": "5,2,2", "hierarchy.leaf-rounds": 2, "hierarchy.fraction-train": 0.4,
    "leaf.strategy": "fedmedian", "cloud.rule": "fedmedian",
    "data.path": "synthetic", "data.split": "blocks", "data.val-fraction": 0.4,
    "data.test-fraction": 0.4, "data.normalize": False, "partition.kind": "iid",
    "partition.unseen-clients": 1, "uplink.clients": "sign",
    "train.model": "mlp-tiny", "train.algorithm": "feddyn",
    "train.lr": 0.01, "train.optimizer": "adam", "train.weight-decay": 0.1,
    "train.clip-norm": 0.01, "train.local-steps": 2, "train.batch-size": 4,
    "train.schedule": "constant",
    "train.prox-mu": 1.0, "scaffold.enabled": False, "cluster.enabled": False, "cluster.start-round": 2,
    "cluster.every": 2, "gate.enabled": False, "personal.leaf-rounds": 1, "privacy.kind": "server-fixed",
    "asynchrony.rule": "fedasync", "evaluate.every": 2,
}  # fmt: skip
NEEDS = {
    "hierarchy.association": {"partition.kind": "dirichlet"},
    "leaf.strategy": NO_SCAFFOLD, "privacy.kind": NO_SCAFFOLD, "train.optimizer": NO_SCAFFOLD,
    "train.algorithm": NO_SCAFFOLD, "evaluate.every": {"gate.enabled": False},
    "cluster.enabled": APART, "gate.enabled": {"gate.min-gain": 1.0},
    "train.prox-mu": {"train.local-epochs": 2}, "asynchrony.rule": {**CLOCK, "asynchrony.rule-args": ""},
}  # fmt: skip

# what a run looks like from outside, or survives, but not what it computes
NO_RESULT = {
    "run-name", "runs-dir", "resume", "report", "tracker", "train.threads", "train.kernel", "train.device",
    "train.processes",  # the same batches; only the order of sums
    "guard.start-timeout", "guard.client-timeout", "guard.return-timeout", "guard.stall-timeout",
    "guard.retries", "guard.min-clients", "guard.start-clients",
    "guard.max-norm-factor", "transfer.share-above-mb", "transfer.spill-above-mb", "checkpoint.every",
    "callbacks", "checkpoint.models",
    "train.start", "train.exchange",  # a file, a model with frozen parts: tests/runs/methods/test_exchange.py
    "hierarchy.names",  # of tiers, in tables
    "evaluate.common",  # a table of its own: tests/runs/data/test_common_test.py
    "train.augment",  # of images, or code of one's own: tests/fedge/training/test_augmentation.py
    "train.task", "train.loss", "train.metrics",  # other data, or code of one's own: tests/fedge/tasks
}  # fmt: skip


# of parts of one's own, which the options that name them stand for
ARGUMENTS = {key for key in options() if key.endswith("-args")}


def own_loss(answers, y):
    """Cross entropy of one's own, which knows no smoothing."""
    return cross_entropy(answers, y, reduction="none")


def all_change(places, turn):
    """Mobility by which all clients go on to the next leaf before round 2."""
    goes = (places.leaf + (turn.global_round == 2)) % places.leaves
    return dict(zip(places.ids.tolist(), goes.tolist(), strict=True))


def test_every_option_is_in_one_of_these_lists():
    assert CASES.keys() == EFFECTS.keys()
    assert set(options()) == CASES.keys() | ALWAYS.keys() | NO_RESULT | ARGUMENTS
    assert len(options()) == len(CASES) + len(ALWAYS) + len(NO_RESULT) + len(ARGUMENTS)
    assert SHOWN_ELSEWHERE.keys() <= CASES.keys()


def third(keys):
    """Keys in order; every third one daily, all in `make extended`."""
    return daily(sorted(keys), sorted(keys)[::3])


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Function from options to the results of a run; equal ones are run once."""
    folder, known = tmp_path_factory.mktemp("effects"), {}
    base = small_config(folder)

    def of(changes):
        name = json.dumps(changes, sort_keys=True)
        if name not in known:
            known[name] = carry_out({**base, **changes}, str(len(known)))
        return known[name]

    return of


@pytest.mark.whole_runs
@pytest.mark.parametrize("key", third(CASES.keys() - SHOWN_ELSEWHERE.keys()))
def test_an_option_acts_where_the_table_says_so(results, key):
    value, where, _ = CASES[key]
    config = from_run_config({"train.model": "linear", **where, key: value})
    assert not [line for line in options_without_effect(config) if line.startswith(key)]
    assert results({**where, key: value}) != results(where)


@pytest.mark.whole_runs
@pytest.mark.parametrize("key", third(CASES))
def test_an_option_that_does_nothing_is_said_or_refused(results, key):
    value, _, where = CASES[key]
    if key in REFUSED:
        with pytest.raises(ConfigError, match=f"^{key} must be "):
            from_run_config({**where, key: value})
        return
    config = from_run_config({"data.path": "windows.npz", "train.model": "linear", **where, key: value})
    assert any(line.startswith(f"{key}=") for line in options_without_effect(config))
    assert results({**where, key: value}) == results(where)


@pytest.mark.whole_runs
@pytest.mark.parametrize("key", third(ALWAYS))
def test_all_others_act_always(results, key):
    where = NEEDS.get(key, {})
    assert results({**where, key: ALWAYS[key]}) != results(where)


def test_defaults_are_never_reported_and_own_parts_may_use_anything():
    assert options_without_effect(from_run_config({})) == []
    said = options_without_effect(from_run_config({"cluster.level": 0.3, "privacy.epsilon": 3.0}))
    assert said == [
        'cluster.level=0.3 has no effect: it needs cluster.enabled and cluster.count "auto"',
        "privacy.epsilon=3.0 has no effect: it needs privacy.kind local",
    ]


def test_a_term_that_is_added_twice_is_said():
    """Of every algorithm in the register with a proximal term of its own; FedAvg's is the option itself."""
    for name in ALGORITHMS.names:
        config = from_run_config(
            {
                "train.algorithm": name,
                "train.prox-mu": 0.1,
                "scaffold.enabled": False,
                "cluster.enabled": False,
            }
        )
        said = effects_twice(config)
        assert bool(said) == ALGORITHMS.has(name, PROXIMAL)
        assert all(line.startswith("train.prox-mu=0.1 is added to the proximal term of") for line in said)
    assert ALGORITHMS.has("fedprox", PROXIMAL)
    assert not effects_twice(from_run_config({"train.algorithm": "fedprox", "scaffold.enabled": False}))


def test_a_run_says_so_at_its_start(tmp_path):
    shown = []
    carry_out(small_config(tmp_path, cluster__level=0.5), "said", shown.append)
    words = 'note: cluster.level=0.5 has no effect: it needs cluster.enabled and cluster.count "auto"'
    assert words in shown[0]


# --- arguments that parts of Fedge declare ------------------------------------------------------------

TRUNCATED = {**NO_SCAFFOLD, "hierarchy.num-servers": 1}
ONCE = {"gate.enabled": False}
METHOD = {**NO_SCAFFOLD, "train.model": "mlp-tiny", "train.local-epochs": 2, "train.batch-size": 5}
ESPERHFL = {**METHOD, "train.algorithm": "esperhfl", "cluster.method": "esperhfl"}
SOFT = {**METHOD, "cluster.method-args.dial": 1.0, "cluster.method-args.warmup": 0, "num-server-rounds": 3}
TESTED = {**METHOD, "cluster.method-args.level": 1.0, "num-server-rounds": 3}
# (option, part, argument) → a value that is not its default, and where it has an effect
DECLARED = {
    ("leaf.strategy", "fedtrimmedavg", "beta"): (0.0, NO_SCAFFOLD),
    ("leaf.strategy", "multikrum", "num-malicious-nodes"): (2, TRUNCATED),
    ("leaf.strategy", "multikrum", "num-nodes-to-select"): (1, TRUNCATED),
    ("leaf.strategy", "fedavgm", "server-momentum"): (0.5, NO_SCAFFOLD),
    ("leaf.strategy", "fedavgm", "server-learning-rate"): (0.5, NO_SCAFFOLD),
    **{
        ("leaf.strategy", rule, argument): (0.5, NO_SCAFFOLD)
        for rule in ("fedadagrad", "fedadam", "fedyogi")
        for argument in ("eta", "tau", "beta-1", "beta-2")
        if (rule, argument[:4]) != ("fedadagrad", "beta")
    },
    ("leaf.strategy", "qfedavg", "q"): (3.0, NO_SCAFFOLD),
    ("cluster.method", "ifca", "losses-on"): ("train", IFCA),
    ("cluster.method", "clove", "losses-on"): ("train", {**IFCA, "num-server-rounds": 3}),
    ("cluster.method", "flux", "split-round"): (1, ONCE),
    ("cluster.method", "flhc", "split-round"): (1, {**ONCE, "cluster.tau": 0.999}),
    ("cluster.method", "kmeans", "split-round"): (1, {**ONCE, "cluster.count": "2"}),
    ("cluster.method", "cfl", "still-below"): (0.0, CFL),
    ("cluster.method", "cfl", "pull-above"): (1e9, CFL),
    **{
        ("partition.kind", kind, argument): (value, {})
        for kind in ("dirichlet", "two-level")
        for argument, value in (("alpha-leaves", 90.0), ("alpha-clients", 0.9), ("test-deal", "as-published"))
    },
    **{
        ("train.algorithm", method, argument): (value, METHOD)
        for method, argument, value in (
            ("fedprox", "mu", 1.0),
            ("feddyn", "alpha", 0.01),
            ("feddyn", "squared", False),
            ("pfedme", "strength", 1.0),
            ("pfedme", "inner-steps", 2),
            ("pfedme", "lr", 0.001),
            ("pfedme", "restart", False),
            ("pfedme", "decay", 0.5),
            ("pfedme", "beta", 0.5),
            ("fedrep", "head-epochs", 1),
            ("fedrep", "base-epochs", 2),
            ("moon", "mu", 9.0),
            ("moon", "temperature", 0.1),
            ("fedala", "layers", 1),
            ("fedala", "eta", 0.1),
            ("fedala", "share", 0.2),
            ("fedala", "threshold", 0.0),
            ("fedala", "passes", 2),
            ("fedsoft", "clusters", 3),
            ("fedsoft", "strength", 1.0),
            ("fedsoft", "every", 1),
        )
    },
    ("cluster.method", "esperhfl", "share"): (0.1, ESPERHFL),
    ("cluster.method", "esperhfl", "sharpness"): (0.0, ESPERHFL),
    ("cluster.method", "clustered-edges", "clusters"): (2, {**METHOD, "cluster.method-args.warmup": 1}),
    ("cluster.method", "clustered-edges", "warmup"): (1, METHOD),
    ("cluster.method", "soft-family", "dial"): (0.5, SOFT),
    ("cluster.method", "soft-family", "warmup"): (5, SOFT),
    ("cluster.method", "soft-family", "smoothing"): (1.0, SOFT),
    ("cluster.method", "soft-family", "coupling"): (0.0, SOFT),
    ("cluster.method", "soft-family", "most"): (1, SOFT),
    ("cluster.method", "tested-family", "dial"): (0.1, TESTED),
    ("cluster.method", "tested-family", "level"): (1e-9, TESTED),
    ("cluster.method", "tested-family", "smoothing"): (1.0, TESTED),
    ("cluster.method", "tested-family", "coupling"): (0.0, TESTED),
    ("cluster.method", "tested-family", "most"): (1, TESTED),
    ("partition.kind", "classes", "classes-per-client"): (1, {}),
    ("partition.kind", "quantity", "sigma"): (0.1, {}),
    ("partition.kind", "imbalance", "imbalance"): (1.5, {}),
}
BY_HAND = {  # personal models, or too few groups or clients for a run of seconds; the argument's test
    **{
        ("train.algorithm", method, argument): f"methods/{place}"
        for place, method, arguments in (
            ("test_witness.py", "ditto", ("strength", "epochs")),
            ("test_witness.py", "apfl", ("alpha", "variant")),
            ("test_witness.py", "fedbabu", ("tune-epochs", "from-own")),
            ("test_esperhfl.py", "esperhfl", ("rate", "decay", "mix")),
        )
        for argument in arguments
    },
    ("cluster.method", "soft-family", "rule"): "methods/test_soft_family.py",
    ("cluster.method", "soft-family", "sweeps"): "methods/test_soft_family.py",
    ("leaf.strategy", "krum", "num-malicious-nodes"): "leaf/strategies/test_rules.py",
    ("leaf.strategy", "bulyan", "num-malicious-nodes"): "leaf/strategies/test_published.py",
    ("cluster.method", "agglomerative", "linkage"): "clustering/methods/test_hierarchical.py",
    ("cluster.method", "clove", "unknown"): "clustering/methods/test_clove.py",
    ("cluster.method", "clove", "first"): "clustering/methods/test_clove.py",
    ("cluster.method", "clove", "stable"): "clustering/methods/test_clove.py",
    ("cluster.method", "feddrift", "delta"): "clustering/methods/test_feddrift.py",
    ("cluster.method", "feddrift", "merge"): "clustering/methods/test_feddrift.py",
    ("cluster.method", "feddrift", "isolation"): "clustering/methods/test_feddrift.py",
    ("cluster.method", "feddrift", "step"): "clustering/methods/test_feddrift.py",
    ("cluster.method", "flux", "scale"): "clustering/methods/test_flux.py",
    ("cluster.method", "flhc", "cut"): "clustering/methods/test_baselines.py",
    ("partition.kind", "user", "split-users"): "data/test_partition.py",
    ("partition.kind", "device", "split-users"): "data/test_partition.py",
    ("gate.rule", "paired", "level"): "serving/test_gate.py",
}


def declared_by(register):
    """(part, argument) of everything that parts of a register declare."""
    return {(entry.name, word.replace("_", "-")) for entry in register for word in entry.arguments}


def test_every_declared_argument_is_in_one_of_these_lists():
    registers = (ALGORITHMS, RULES, GROUPINGS, PARTITIONS, GATES)
    declared = {(register.option, *each) for register in registers for each in declared_by(register)}
    assert declared == DECLARED.keys() | BY_HAND.keys()
    assert declared_by(CLOUD) == {each for each in declared_by(RULES) if each[0] != "qfedavg"}
    for (_, _, word), place in BY_HAND.items():
        assert word in (TESTS / place).read_text(encoding="utf-8").replace("_", "-"), (word, place)


@pytest.mark.whole_runs
@pytest.mark.parametrize("case", third(DECLARED), ids="-".join)
def test_a_declared_argument_acts(results, case):
    option, part, argument = case
    value, where = DECLARED[case]
    table = f"{option}-args.{argument}"
    where = {**where, option: part}
    assert results({**where, table: value}) != results(where)


@pytest.mark.parametrize(
    ("options_", "line"),
    [
        ({"leaf.strategy-args.beta": 0.1}, "leaf.strategy fedavg cannot be made: .*beta"),
        ({"cluster.method-args.linkage": "complete"}, "cluster.method components.* linkage"),
        (
            {"cluster.method": "flhc", "cluster.method-args.split-rounds": 2},
            "cluster.method flhc.*did you mean split_round",
        ),
        ({"gate.rule-args.level": 0.1}, "gate.rule published.* level"),
        (
            {"partition.kind-args.sigma": 0.1},
            "partition.kind-args.sigma must be an argument of partition.kind user, which takes split-users; "
            "leave it out, or set partition.kind to quantity$",
        ),
        (
            {"partition.kind": "quantity", "partition.kind-args.sigmas": 0.1},
            "which takes sigma; did you mean sigma",
        ),
        ({"partition.kind": "iid", "partition.kind-args.x": 1}, "which takes none; leave it out$"),
        (
            {"partition.kind": "quantity", "partition.kind-args.sigma": 11.0},
            "^partition.kind-args.sigma must be at most 10.0, but is 11.0",
        ),
        (
            {"partition.kind": "classes", "partition.kind-args.classes_per_client": 1.5},
            "^partition.kind-args.classes-per-client must be a whole number",
        ),
    ],
)
def test_an_argument_of_another_part_is_refused(options_, line):
    with pytest.raises(ConfigError, match=line):
        refuse_parts_that_do_not_fit(from_run_config({"scaffold.enabled": False, **options_}))
