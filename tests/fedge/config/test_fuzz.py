"""Whatever a user sets, wherever: it is accepted, or refused in one line that names the key."""

import math
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedge.config.config import Config
from fedge.config.flat import from_run_config, options
from fedge.config.registers.option import ConfigError
from fedge.engine.federation import Federation, from_backend
from fedge.launch.preflight import check
from fedge.launch.projects.project import Project, parse_override
from fedge.seeding import resolve_seed
from hhar.windows.window_file import Windows, save_windows

KEYS = list(options())
NUMBERS = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([0, 1, -1, 2**31, 2**63 - 1, 2**63, 10**400, 10**4000, 5e-324, sys.float_info.max, -0.0]),
)
TEXTS = st.one_of(
    st.text(),
    st.text(st.characters()),  # surrogates too
    st.sampled_from(
        ["", " ", "\0", "a\nb", "x" * 5000, "9" * 5000, "\ud800", "٣,٣,٣", "~", "/", "..", "3,3,-3"]
    ),
    st.sampled_from(["auto", "synthetic", "cnn", "user", "session", "krum", "update", "cuda", "3,3,3"]),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS, st.binary(), st.dates(), st.datetimes())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
)


def refused(error, *names):
    """Check that a refusal is one printable line of bounded length that holds one of `names`."""
    message = str(error)
    assert message.isprintable(), message
    assert len(message) < 1000, message[:2000]
    assert ";" in message, message
    assert any(name in message for name in names), message


@pytest.mark.slow
@settings(max_examples=2000)
@given(key=st.sampled_from(KEYS), value=VALUES)
@example(key="train.lr", value=np.zeros((3, 3)))
def test_any_value_of_any_key_is_accepted_or_refused_by_name(key, value):
    try:
        config = from_run_config({key: value})
    except ConfigError as error:
        refused(error, key)
        return
    assert isinstance(config, Config)


@pytest.mark.parametrize("key", KEYS)
def test_a_number_that_python_cannot_print(key):
    with pytest.raises(ConfigError) as caught:
        from_run_config({key: 10**5000})
    refused(caught.value, key)


@settings(max_examples=500)
@given(key=st.text(), value=SCALARS)
def test_any_other_key_is_refused_by_name(key, value):
    if key in KEYS:
        return
    with pytest.raises(ConfigError) as caught:
        from_run_config({key: value})
    assert str(caught.value).isprintable()
    assert "is not a configuration key; " in str(caught.value)


@pytest.fixture(scope="module")
def window_file(tmp_path_factory):
    """Nine users with two classes of four sessions of two windows."""
    rows = [
        (user, f"{label}-{session}", label)
        for user in "abcdefghi"
        for label in (0, 1)
        for session in range(4)
        for _ in (1, 2)
    ]
    user, session, y = (np.array(column) for column in zip(*rows, strict=True))
    x = np.arange(len(rows), dtype=np.float32)[:, None, None]
    windows = Windows(x, y.astype(np.int64), user, user, session, ("sit", "walk"), ("acc_x",))
    return save_windows(tmp_path_factory.mktemp("windows") / "w.npz", windows)


def in_range(key):
    """A strategy for values that a key takes by itself, their extremes included."""
    default, rule = options()[key]
    if rule["table"]:
        return st.just('{"a": 1}')
    if rule["choices"]:
        return st.sampled_from(rule["choices"])
    if isinstance(default, bool):
        return st.booleans()
    if rule["kind"] is str:
        return TEXTS
    low = rule["above"] if rule["minimum"] is None else rule["minimum"]
    if rule["kind"] is int:
        return st.integers(int(low), int(rule["maximum"] or 2**63 - 1))
    high = sys.float_info.max if rule["maximum"] is None else rule["maximum"]
    return st.floats(low, high, exclude_min=rule["above"] is not None)


# what is tried before a run depends on these; the others only matter while clients train
DECIDED_BEFORE = [
    k
    for k in KEYS
    if k.split(".")[0]
    in ("hierarchy", "leaf", "data", "partition", "run-name", "scenario", "scenario-groups")
]


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_any_pair_of_allowed_values_passes_the_check_or_is_refused(window_file, data):
    """The whole check before a run: hierarchy, data, partition, leaves."""
    first, second = (data.draw(st.sampled_from(DECIDED_BEFORE)) for _ in range(2))
    config = {"data.path": str(window_file), "data.synthetic-users": 0, "scaffold.enabled": False}
    config |= {first: data.draw(in_range(first)), second: data.draw(in_range(second))}
    config["data.synthetic-users"] = min(config["data.synthetic-users"], 20)
    try:
        check(config, Federation(9))
    except ConfigError as error:
        refused(error, first, second, *KEYS, "SEED")


@given(st.text(max_size=5000), st.integers(0, 2**70))
@example("9" * 5000, 0)
@example("٣", 0)
def test_any_seed_in_the_environment(text, configured):
    try:
        seed, source = resolve_seed(configured, {"SEED": text})
    except ConfigError as error:
        refused(error, "SEED")
        return
    assert seed >= 0
    assert source in ("environment", "config")


@settings(max_examples=500)
@given(st.one_of(st.text(), st.tuples(st.sampled_from(KEYS), st.text()).map("=".join)))
@example("a=" + "[" * 5000)
@example("a=" + "9" * 5000)
@example("train.lr=1 train.lr.x=2")
@example("train='x' train.lr=1")
@example("a.b=1 a=2")
@example("no\0file.toml")
@example("x" * 5000 + ".toml")
def test_any_override_is_read_or_refused(text):
    try:
        flat = parse_override(text)
    except ConfigError as error:
        refused(error, "-c")
        return
    try:
        from_run_config(flat)
    except ConfigError as error:
        refused(error, *flat)


@given(st.binary(max_size=200))
@example(b"\xff\xfe")
@example(b"[" * 5000)
@example(b"a=" + b"9" * 5000)
@example(b"[tool.flwr]\napp = 3")
@example(b"tool = 3")
@example(b"[tool]\nflwr = 3")
@example(b"[tool.flwr.app]\nconfig = 3\n[tool.flwr.federations]\ndefault = 3")
@example(b"[tool.flwr.app]\n[tool.flwr]\nfederations = 3")
@example(b"[tool.flwr.app]\n[tool.flwr.federations]\ndefault = 'a'\na = 3")
@example(b"[tool.flwr.app]\n[tool.flwr.federations]\ndefault = 'a'\n[tool.flwr.federations.a]\noptions = 3")
@example(b"[tool.flwr.app]\n[tool.flwr.federations]\ndefault = [1]\n")
def test_any_pyproject_is_read_or_refused(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("app")
    (folder / "pyproject.toml").write_bytes(content)
    try:
        project = Project(folder)
        project.run_config([])
        project.federation(None)
    except ConfigError as error:
        refused(error, "pyproject.toml", "federation", *KEYS)


@pytest.mark.slow
@settings(max_examples=300)
@given(VALUES)
@example({"client-resources": 3})
@example({"client-resources": {"num-cpus": 10**400}})
@example({"init-args": [1]})
def test_any_backend_is_read_or_refused(backend):
    try:
        federation = from_backend(9, backend)
    except ConfigError as error:
        refused(error, "options.backend")
        return
    assert math.isfinite(federation.num_cpus)


@pytest.mark.parametrize(
    "value", ["1979-05-27", "07:32:00", "[1, 2]", "{a = 1}", "nan", "-inf", "true", "0x10.5"]
)
def test_values_that_toml_can_hold_and_a_number_cannot(tmp_path, value):
    (tmp_path / "c.toml").write_text(f"[train]\nlr = {value}\n")
    with pytest.raises(ConfigError) as caught:
        from_run_config(parse_override(str(tmp_path / "c.toml")))
    refused(caught.value, "train.lr", "-c must be TOML")
