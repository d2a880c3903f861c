"""Files that a part is made of: all of the user's own that it imports, by whatever words, and no others."""

import hashlib
import sys
from importlib import import_module

import pytest
from own_code import forgotten

from fedge.config.registers.failing import place
from fedge.config.registers.option import ConfigError
from fedge.config.registers.own_files import own_files
from fedge.config.registers.register import (
    add_search_folders,
    code_facts,
    refuse_other_code,
    sha256_of_files,
    source_sha256,
)

FILES = {
    "part.py": "import numpy\nimport one\nfrom pack import inner, name\n\n\nclass Part: ...\n",
    "one.py": "import json\nimport two.deep as d\nimport part\n",
    "two/__init__.py": "",
    "two/deep.py": "def later():\n    from pack.late import x\n",
    "pack/__init__.py": "from .beside import *\n\nname = 1\n",
    "pack/beside.py": "from fedge.algorithm import Algorithm\n",
    "pack/inner.py": "from . import beside\nfrom .. import nothing\nfrom .sub import last\n",
    "pack/sub/__init__.py": "",
    "pack/sub/last.py": "",
    "pack/late.py": "x = 1\n",
    "unused.py": "",
    "pack/unused.py": "",
}
USED = {name for name in FILES if "unused" not in name}


@pytest.fixture
def part(tmp_path, monkeypatch):
    """The class of a project whose files import each other in all ways."""
    for name, text in (FILES | {"pack/inner.py": FILES["pack/inner.py"].replace("from .. ", "# ")}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with forgotten(tmp_path):
        add_search_folders(tmp_path)
        yield import_module("part").Part


def test_all_files_imported_in_turn_are_named_alike_wherever_the_project_is(part, tmp_path):
    found = own_files(part)
    assert next(iter(found)) == "part.py"
    assert set(found) == USED
    assert all(file == tmp_path / name for name, file in found.items())


def test_one_file_has_its_own_sha256_and_an_installed_part_no_others(part, tmp_path):
    (tmp_path / "part.py").write_text("class Part: ...\n")
    assert source_sha256(part) == hashlib.sha256(b"class Part: ...\n").hexdigest()
    assert set(own_files(pytest.raises)) == {"raises.py"}
    assert own_files(5) == {}
    assert source_sha256(5) == ""


@pytest.mark.parametrize("name", sorted(USED))
def test_the_file_that_differs_is_named(part, tmp_path, name):
    facts = code_facts("train.model", part)
    refuse_other_code("train.model", "part:Part", part, facts)
    (tmp_path / name).write_text((tmp_path / name).read_text() + "# other\n")
    assert source_sha256(part) != facts["train.model"]
    with pytest.raises(ConfigError, match=rf"same code on every machine, but '{name}' has sha256 ") as caught:
        refuse_other_code("train.model", "part:Part", part, facts)
    assert str(caught.value).endswith(f"copy the server's file to {tmp_path / name}")


@pytest.mark.parametrize(
    ("at_server", "words"), [(True, "is at the server and not here"), (False, "is here")]
)
def test_a_file_that_one_machine_lacks_is_named(part, tmp_path, at_server, words):
    """As one imported if it is there."""
    facts = code_facts("train.model", part)
    if at_server:
        (tmp_path / "pack/late.py").unlink()
    else:
        facts = {key: value for key, value in facts.items() if not key.endswith("pack/late.py")}
        facts["train.model"] = "0" * 64
    with pytest.raises(ConfigError, match=rf"'pack/late.py' {words}"):
        refuse_other_code("train.model", "part:Part", part, facts)


def test_a_file_that_is_none_of_pythons_is_compared_as_it_is(part, tmp_path):
    (tmp_path / "one.py").write_text("def broken(:\n")
    assert set(sha256_of_files(part)) == USED - {"two/__init__.py", "two/deep.py", "pack/late.py"}


@pytest.mark.parametrize("packages", ["site-packages", "dist-packages"])
def test_packages_of_another_environment_on_the_path_are_nobodys_own(part, tmp_path, monkeypatch, packages):
    """As a path file, PYTHONPATH or a user's own installs name them; all of PyTorch would be read through."""
    before = set(own_files(part))
    there = tmp_path / "other" / "lib" / packages
    (there / "elsewhere").mkdir(parents=True)
    (there / "elsewhere" / "__init__.py").write_text("def fail():\n    raise KeyError\n")
    monkeypatch.syspath_prepend(str(there))
    (tmp_path / "one.py").write_text(FILES["one.py"] + "import elsewhere\n")
    assert set(own_files(part)) == before
    with pytest.raises(KeyError) as caught:
        import_module("elsewhere").fail()
    assert place(caught.value) == f" ({__file__}, line {caught.tb.tb_lineno})"
