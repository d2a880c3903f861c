import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_names import odd_names

from fedge.config.config import Config
from fedge.config.flat import fold_tables, from_run_config, option_meant, options, to_run_config
from fedge.config.registers.groupings import GROUPINGS
from fedge.config.registers.option import ConfigError
from fedge.config.registers.traits import TRUTH
from fedge.config.sections.cluster import ClusterConfig
from fedge.config.sections.hierarchy import LeafConfig
from fedge.config.sections.train import ScaffoldConfig
from fedge.launch.projects.project import flatten, read_toml

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
KEYS = list(options())
# with these, every value of every single key stands in no contradiction
HARMLESS = {
    "scaffold.enabled": False,
    "data.val-fraction": 0.1,
    "data.test-fraction": 0.1,
    "train.model": "linear",
}


def allowed(key):
    """A strategy for the values that a key takes."""
    default, rule = options()[key]
    if rule["table"]:
        return st.dictionaries(st.sampled_from("ab"), st.integers() | st.text("xyz"), min_size=1).map(
            json.dumps
        )
    if rule["choices"]:
        return st.sampled_from(rule["choices"])
    if isinstance(default, bool):
        return st.booleans()
    if key == "cluster.count":
        return st.sampled_from(["threshold", "auto", "1", "3", "12"])
    if key == "train.metrics":
        return st.sampled_from(["", "my:one", "my:one,my:other"])
    if key == "hierarchy.tree":
        return st.sampled_from(["", "2x3x4", "((3,3),(2,2,2))"])
    if key == "hierarchy.participation":
        return st.sampled_from(["auto", "2", "1: all; 4: 0.5", "my:numbers"])
    if key in ("cluster.tiers", "gate.tiers", "cloud.rule-tiers"):
        return st.sampled_from(["0", "cloud", "0, cloud"])
    if key == "hierarchy.names":
        return st.sampled_from(["", "cloud,edge", "root,leaf"])
    if key == "hierarchy.region-rounds":
        return st.integers(1, 9).map(str)
    if key == "checkpoint.models":
        return st.sampled_from(["", "best", "1", "2,10,best"])
    if key == "scaffold.levels":
        return st.integers(1, 2)  # as many as there are tiers of servers
    if key == "partition.deal":
        return st.sampled_from(["seed", "sorted", "0", "17"])
    if key == "train.lr":
        return st.floats(1e-30, 1000)
    if rule["kind"] is str:
        return st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=8)
    if key == "guard.max-norm-factor":
        return st.just(0.0) | st.floats(1, 1000)
    words = st.sampled_from(rule["words"]) if rule["words"] else st.nothing()
    low = rule["above"] if rule["minimum"] is None else rule["minimum"]
    high = low + 1000 if rule["maximum"] is None else rule["maximum"]
    if rule["kind"] is int:
        return words | st.integers(int(low), int(high))
    return words | st.floats(low, high, exclude_min=rule["above"] is not None)


WRONG_TYPES = {
    bool: st.sampled_from([0, 1, 0.5, "true", "", [True]]),
    int: st.sampled_from([True, 1.0, 2.5, "3", [3], None]),
    float: st.sampled_from([True, "0.1", [0.1], None, float("nan"), float("inf"), 10**400]),
    str: st.sampled_from([True, 3, 0.5, ["cnn"], None]),
}


def test_defaults_by_hand():
    """The first values of the configuration page: 100 global rounds, seed 42, 3 leaves, tau 0.7, lr 0.05."""
    config = from_run_config({})
    assert config == Config()
    assert (config.num_server_rounds, config.seed, config.hierarchy.num_servers) == (100, 42, 3)
    assert (config.cluster.tau, config.train.lr, config.gate.min_gain) == (0.7, 0.05, 0.0)


def test_pyproject_lists_exactly_the_options_with_their_defaults():
    written = flatten(read_toml(PYPROJECT, "pyproject.toml")["tool"]["flwr"]["app"]["config"])
    defaults = {key: default for key, (default, _) in options().items()}
    assert written.keys() == defaults.keys()
    assert {k: (type(v), v) for k, v in written.items()} == {k: (type(v), v) for k, v in defaults.items()}


def test_pyproject_says_what_the_declarations_say():
    """Each line's comment in pyproject.toml begins with the option's own words."""
    section = ""
    comments = {}
    for line in PYPROJECT.read_text().split("[tool.flwr.app.config]")[1].splitlines():
        if line.startswith("["):
            if not line.startswith("[tool.flwr.app.config."):
                break
            section = line.removeprefix("[tool.flwr.app.config.").rstrip("]") + "."
        elif "#" in line and "=" in line.split("#")[0]:
            comments[section + line.split("=")[0].strip()] = line.split("#", 1)[1].strip()
    assert comments.keys() == set(KEYS)
    wrong = {k: c for k, c in comments.items() if not c.startswith(options()[k][1]["doc"].split("; see")[0])}
    assert not wrong


CLOCK = {
    "scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False, "hierarchy.num-servers": 1,
    "scenario": "none", "leaf.strategy": "fedavg",
}  # fmt: skip


# what else a key's values need, where they contradict defaults
NEEDS = {
    "personal.layers": {"train.model": "cnn"},
    "cluster.count": {"cluster.enabled": False},
    "cluster.method": {"cluster.enabled": False},
    "cluster.signal": {"hierarchy.num-servers": 4},
    "asynchrony.rule": CLOCK,
    "scaffold.levels": {"scaffold.enabled": True},
    "uplink.servers": {"gate.enabled": False, "cluster.enabled": False},
    "scenario": {"data.path": "a.npz,b.npz"},
    "train.lr-decay": {"num-server-rounds": 1},
    "partition.kind-args": {"partition.kind": "module:Name"},  # which may take any
    "train.processes": {"train.batch-size": 4096},  # a window of a batch each
}


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
@settings(max_examples=6)
@given(data=st.data())
def test_every_key_round_trips(key, data):
    value = data.draw(allowed(key))
    harmless = HARMLESS | NEEDS.get(key, {})
    config = from_run_config({**harmless, key: value})
    flat = to_run_config(config)
    assert list(flat) == KEYS
    assert flat[key] == value
    assert from_run_config(flat) == config


@pytest.mark.parametrize("key", KEYS)
def test_a_whole_number_is_a_number_but_nothing_else_changes_type(key):
    default, rule = options()[key]
    wrong = {bool: 1, int: 1.0, float: "1", str: 1}[rule["kind"]]
    with pytest.raises(ConfigError, match=f"^{re.escape(key)} must be ") as caught:
        from_run_config({key: wrong})
    assert repr(wrong) in str(caught.value)
    assert f"set for example {key}=" in str(caught.value)
    if type(default) is float:
        assert to_run_config(from_run_config({**HARMLESS, "train.lr": 1}))["train.lr"] == 1.0


@given(st.data())
def test_a_wrong_type_is_one_line_with_key_value_and_next_step(data):
    key = data.draw(st.sampled_from(KEYS))
    value = data.draw(WRONG_TYPES[options()[key][1]["kind"]])
    with pytest.raises(ConfigError) as caught:
        from_run_config({key: value})
    message = str(caught.value)
    assert message.startswith(f"{key} must be ")
    assert "but is" in message
    assert "set for example" in message or "its default is" in message
    assert "\n" not in message


@given(st.data())
def test_out_of_range_names_the_bound(data):
    bounded = [
        k for k in KEYS if any(options()[k][1][b] is not None for b in ("minimum", "maximum", "above"))
    ]
    key = data.draw(st.sampled_from(bounded))
    rule = options()[key][1]
    bounds = [b for b in ("minimum", "maximum", "above") if rule[b] is not None]
    bound = data.draw(st.sampled_from(bounds))
    beyond = {"minimum": rule["minimum"], "maximum": rule["maximum"], "above": rule["above"]}[bound]
    distance = data.draw(st.integers(0 if bound == "above" else 1, 1000))
    value = rule["kind"](beyond + (distance if bound == "maximum" else -distance) * max(1, abs(beyond)))
    with pytest.raises(ConfigError) as caught:
        from_run_config({key: value})
    words = {"minimum": "at least", "maximum": "at most", "above": "above"}[bound]
    assert f"{key} must be {words} {rule[bound]}, but is {value!r}; its default is" in str(caught.value)


@pytest.mark.parametrize("key", [k for k in KEYS if options()[k][1]["choices"]])
def test_a_choice_misspelt_is_answered_with_the_list_and_the_nearest(key):
    choice = options()[key][1]["choices"][0]
    with pytest.raises(ConfigError) as caught:
        from_run_config({key: choice + "x"})
    assert f"{key} must be one of {choice}" in str(caught.value)
    assert f"did you mean {choice}?" in str(caught.value)
    with pytest.raises(ConfigError, match="its default is"):
        from_run_config({key: "%"})


def misspellings(key):
    """Yield a key with one letter less, one more, two swapped, an underscore, capitals, and without its
    section.
    """
    for i in range(len(key)):
        yield key[:i] + key[i + 1 :]
        yield key[:i] + "x" + key[i:]
        yield key[:i] + key[i + 1 : i + 2] + key[i] + key[i + 2 :]
    yield key.replace("-", "_")
    yield key.title()


def refused_with_the_right_one(key, wrongs):
    """Every wrong key is refused by name, with the one that was meant."""
    for wrong in wrongs:
        with pytest.raises(ConfigError) as caught:
            from_run_config({wrong: options()[key][0]})
        assert str(caught.value) == f"{wrong} is not a configuration key; did you mean {key}?"


@pytest.mark.parametrize("key", KEYS)
def test_a_misspelling_of_a_key_is_refused_with_the_right_one(key):
    """A tenth of all misspellings, of other letters for each key."""
    refused_with_the_right_one(key, sorted(set(misspellings(key)) - {key})[len(key) % 10 :: 10])


@pytest.mark.extended
@pytest.mark.parametrize("key", KEYS)
def test_every_misspelling_of_a_key_is_refused_with_the_right_one(key):
    refused_with_the_right_one(key, set(misspellings(key)) - {key})


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("cluster.split-round", "cluster.method-args.split-round"),
        ("leaf.server-momentum", "leaf.strategy-args.server-momentum"),
        ("cloud.beta", "cloud.rule-args.beta"),
        ("gate.level", "gate.rule-args.level"),
        ("partition.split-users", "partition.kind-args.split-users"),
        ("partition.alpha", "partition.kind-args.alpha-leaves"),  # as it begins
    ],
)
def test_an_argument_that_is_taken_for_an_option_is_named(key, known):
    with pytest.raises(ConfigError, match=f"^{key} is not a configuration key; did you mean {known}\\?"):
        from_run_config({key: 1})


ALSO = [(word, key) for key, (_, rule) in options().items() for word in rule["also"]]


@pytest.mark.parametrize(("word", "key"), ALSO)
def test_another_name_of_an_option_leads_to_it(word, key):
    section = key.rpartition(".")[0]
    refused_with_the_right_one(key, {word, f"{section}.{word}".lstrip("."), word.replace("-", "_")})
    assert option_meant(word) == key


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ("train.epochs", "train.local-epochs"),
        ("epochs", "train.local-epochs"),
        ("rounds", "num-server-rounds"),
        ("cluster.gain", "cluster.min-gain"),
        ("train.decay", "train.lr-decay"),
    ],
)
def test_the_end_of_a_name_leads_to_it(wrong, key):
    refused_with_the_right_one(key, [wrong])


def test_a_key_without_its_section_and_one_that_resembles_nothing():
    with pytest.raises(ConfigError, match=r"^lr is not a configuration key; did you mean train\.lr\?"):
        from_run_config({"lr": 0.1})
    with pytest.raises(ConfigError, match=r"fedge options lists all of them"):
        from_run_config({"%%%%": 0.1})


@pytest.mark.parametrize("value", ["deal", "sign-flip"])
def test_an_option_that_is_gone_is_said_to_be(value):
    """The nearest of today's keys would be no help."""
    with pytest.raises(
        ConfigError, match=r"^cluster\.test is no longer a configuration key, .*leave it out$"
    ):
        from_run_config({"cluster.test": value})


def test_scaffold_needs_fedavg():
    for strategy in ("fedmedian", "fedtrimmedavg", "krum", "fedadam"):
        with pytest.raises(ConfigError, match=f"but it is '{strategy}'; add scaffold.enabled=false"):
            from_run_config({"leaf.strategy": strategy})
        assert (
            from_run_config({"leaf.strategy": strategy, "scaffold.enabled": False}).leaf.strategy == strategy
        )
    with pytest.raises(ConfigError, match=r"scaffold\.enabled needs"):
        Config(leaf=LeafConfig(strategy="krum"), scaffold=ScaffoldConfig())


@pytest.mark.parametrize("method", ["oracle", "random"])
def test_who_needs_the_truth_is_refused_without(method):
    with pytest.raises(
        ConfigError, match=rf"^cluster\.method {method} needs true groups, but scenario is 'none'"
    ):
        from_run_config({"cluster.method": method})
    assert from_run_config({"cluster.method": method, "scenario": "flip"}).cluster.method == method
    assert not from_run_config({"cluster.method": method, "cluster.enabled": False}).cluster.enabled


def test_something_must_be_left_for_training():
    """0.5 + 0.4 = 0.9 leaves a tenth; 0.5 + 0.45 does not."""
    assert from_run_config({"data.val-fraction": 0.5, "data.test-fraction": 0.4}).data.val_fraction == 0.5
    with pytest.raises(ConfigError, match=r"0\.5 \+ 0\.45; lower one of them"):
        from_run_config({"data.val-fraction": 0.5, "data.test-fraction": 0.45})


@pytest.mark.parametrize("name", ["x" * 201, "a/b", "..\\x", ".", "..", "latest", "a\nb", "a\0"])
def test_a_run_name_stays_in_the_runs_folder(name):
    with pytest.raises(ConfigError, match="run-name must be a plain folder name"):
        from_run_config({"run-name": name})


@pytest.mark.parametrize("folder", ["", "  ", "a\0b"])
def test_a_runs_dir_is_a_path(folder):
    with pytest.raises(ConfigError, match="runs-dir must be the path of a folder"):
        from_run_config({"runs-dir": folder})


def test_configurations_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().train.lr = 1.0  # type: ignore[misc]


def test_the_largest_whole_number_that_is_a_number():
    assert from_run_config({"guard.client-timeout": 10**300}).guard.client_timeout == 1e300
    with pytest.raises(ConfigError, match=r"guard\.client-timeout must be a finite number"):
        from_run_config({"guard.client-timeout": int(sys.float_info.max) * 2})


@pytest.mark.parametrize("count", ["0", "-1", "two", "", "1.5", "9" * 5000])
def test_a_number_of_clusters_that_is_none_is_refused(count):
    with pytest.raises(ConfigError, match=r'^cluster.count must be "threshold", "auto" or a number'):
        from_run_config({"cluster.count": count})


AFFINITY = {"cluster.signal": "affinity", "cluster.method": "agglomerative"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cluster.count": "2"}, "cluster.method components needs cluster.count to be \"threshold\""),
        ({"cluster.method": "spectral"}, "cluster.method spectral needs cluster.count to be \"auto\" or"),
        (
            {"cluster.method": "agglomerative", "cluster.count": "auto", "cluster.patience": 2},
            "cluster.count \"auto\" needs cluster.signal to be affinity",
        ),
        ({**AFFINITY, "cluster.count": "auto"}, "cluster.count \"auto\" needs cluster.patience of at least"),
        (
            {"cluster.method": "agglomerative", "cluster.count": "4"},
            "cluster.count must be at most hierarchy.num-servers, but is 4 for 3",
        ),
        ({**AFFINITY, "cluster.count": "2"}, "cluster.signal affinity needs hierarchy.num-servers of at"),
        (
            {
                "privacy.kind": "server-fixed", "scaffold.enabled": False, "train.model": "linear",
                "cluster.probe-every": 3,
            },
            "cluster.probe-every must be 0 with privacy.kind server-fixed",
        ),
        (
            {
                **AFFINITY, "cluster.count": "auto", "cluster.patience": 2, "hierarchy.num-servers": 4,
                "privacy.kind": "server-fixed", "scaffold.enabled": False, "train.model": "linear",
            },
            "cluster.count must not be auto with privacy.kind server-fixed",
        ),
    ],
)  # fmt: skip
def test_clusterings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}") as caught:
        from_run_config(changes)
    assert "\n" not in str(caught.value)
    from_run_config({**changes, "cluster.enabled": False, "cluster.probe-every": 0})


def test_tables_of_arguments_are_folded():
    """Dotted keys and nested tables give the same JSON text, which Flower takes; later ones win."""
    dotted = {"train.model-args.width": 8, "train.model-args.inner.depth": 2, "train.lr": 0.1}
    folded = fold_tables(dotted)
    assert folded == {"train.lr": 0.1, "train.model-args": '{"width": 8, "inner": {"depth": 2}}'}
    assert fold_tables(folded) == folded
    again = fold_tables({**folded, "train.model-args.width": 9})
    assert from_run_config(again).train.arguments("model") == {"width": 9, "inner": {"depth": 2}}
    assert from_run_config(dotted).train.arguments("model") == {"width": 8, "inner": {"depth": 2}}


def test_what_is_no_table_is_refused():
    with pytest.raises(
        ConfigError, match=r"^train\.model-args must be a table of keyword arguments, but is '3'"
    ):
        from_run_config({"train.model-args": "3"})
    with pytest.raises(ConfigError, match=r"^train\.modelargs\.width is not a configuration key"):
        from_run_config({"train.modelargs.width": 3})


def test_a_name_may_be_code_of_others():
    assert from_run_config({"train.model": "package.module:Net"}).train.model == "package.module:Net"
    with pytest.raises(ConfigError, match="or \"module:Name\", but is 'cnnn'; did you mean cnn"):
        from_run_config({"train.model": "cnnn"})


def test_fixed_and_other_numbers_of_clusters():
    counts = ("threshold", "auto", "7")
    assert [ClusterConfig(enabled=False, count=c).fixed_count for c in counts] == [None, None, 7]


CONFIGS = sorted(PYPROJECT.parent.glob("configs/**/*.toml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configurations_are_accepted(path):
    groups = {"scenario": "rotate"} if path.stem in GROUPINGS.names_with(TRUTH) else {}
    assert from_run_config({**flatten(read_toml(path, "config")), **groups})


def test_the_published_configuration_is_the_default():
    published = next(path for path in CONFIGS if path.stem == "published")
    assert from_run_config(flatten(read_toml(published, "config"))) == Config()


def test_a_run_s_name_is_a_folder_s_and_no_option_of_a_command():
    """Of 3,000 odd names: refused in one line, or a folder below that of all runs."""
    taken, refused = 0, []
    for name in odd_names(3000, 1):
        try:
            found = from_run_config({"run-name": name}).run_name
        except ConfigError as error:
            refused.append(str(error))
            continue
        taken += 1
        assert found == name
        if name:
            path = Path("runs") / name
            assert (path.parent, path.name) == (Path("runs"), name)
            assert name not in ("..", "latest")
            assert name.isprintable()
            assert not name.startswith(("-", "."))
    assert 300 < taken < 2000
    assert all(line.isprintable() for line in refused)


def test_no_option_sends_its_reader_to_source_code():
    """A wheel's user has no checkout."""
    assert [key for key, (_, rule) in options().items() if ".py" in rule["doc"]] == []
