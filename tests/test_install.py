"""How .venv is set up: what uv is told of pip's settings, and what stands in pyproject.toml for it."""

import sys
from pathlib import Path

import pytest

from tools.install import uv_variables

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
    """Return the extras of Fedge that requirements name: ["fedge[a,b]"] → {"a", "b"}."""
    return {name for text in requirements if text.startswith("fedge[") for name in text[6:-1].split(",")}
