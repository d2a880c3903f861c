"""How .venv is set up: what uv is told of pip's settings, and what stands in pyproject.toml for it."""

import sys
from pathlib import Path

import pytest

from tools.install import uv_variables
from tools.tag_check import objection

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize(
    ("lines", "environment", "told"),
    [
        ([], {}, {}),
        (["global.timeout='60'", "nonsense"], {}, {}),
        (["global.index-url='https://a/simple'"], {}, {"UV_DEFAULT_INDEX": "https://a/simple"}),
        (["global.index-url='https://a/simple'"], {"UV_DEFAULT_INDEX": "b"}, {}),
        (
            [":env:.find-links='/w'", ":env:.cert='/c.crt'"],
            {},
            {"UV_FIND_LINKS": "/w", "SSL_CERT_FILE": "/c.crt"},
        ),
        (
            ["global.extra-index-url='file:///a\\nfile:///b'"],
            {},
            {"UV_INDEX": "file:///a file:///b", "UV_INDEX_STRATEGY": "unsafe-best-match"},
        ),
    ],
)
def test_uv_is_told_what_pip_is_told(lines, environment, told):
    """pip takes the best of all indexes; uv only does so when it is asked to."""
    assert uv_variables(lines, environment) == told


def test_no_dependency_is_for_flwr_run_trackers_or_tests_alone():
    """Ray, trackers and what checks code are extras; `all` has every one that a user may want."""
    base = " ".join(PROJECT["dependencies"])
    for name in ("ray", "simulation", "wandb", "mlflow", "tensorboard", "memray", "pytest", "mypy", "ruff"):
        assert name not in base
    extras = PROJECT["optional-dependencies"]
    for_users = extras.keys() - {"all", "dev", "docs", "notebooks", *_inside(extras["trackers"])}
    assert _inside(extras["all"]) == for_users
    assert "all" in _inside(extras["dev"])


def _inside(requirements):
    """The extras of Fedge that requirements name: ["fedge[a,b]"] → {"a", "b"}."""
    return {name for text in requirements if text.startswith("fedge[") for name in text[6:-1].split(",")}


@pytest.mark.parametrize(
    ("tags", "is_right"),
    [([], True), (["v0.2.0"], True), (["v0.1.9"], False), (["nightly"], True), (["v0.1.9", "v0.2.0"], True)],
)
def test_a_tag_is_the_version(tags, is_right):
    assert (objection(tags, "0.2.0") is None) == is_right


def test_flower_accepts_the_project():
    """It wants name, version, publisher and components in the file itself."""
    from flwr.cli.config_utils import validate_config

    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    is_valid, errors, _ = validate_config(config, check_module=False)
    assert (is_valid, errors) == (True, [])
