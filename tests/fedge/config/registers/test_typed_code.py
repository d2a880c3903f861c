"""Digests of code of a notebook: equal for equal code, others for other code, wherever it was typed."""

import subprocess
import sys

import pytest

from fedge.config.registers.typed_code import SCRIPT, object_sha256

CLASS = (
    "class Part(Base):\n    k = 1\n    def f(self, x=2):\n        return [x * {k} for _ in {{'a', 'b'}}]\n"
)
FACTORY = "def make(k):\n    def part(x):\n        return x * k\n    return part\npart = make({k})\n"
OBJECT = "class Kind:\n    def __init__(self, k):\n        self.k = k\npart = Kind({k})\n"
PARTIAL = "from functools import partial\ndef f(x, k):\n    return x\npart = partial(f, k={k})\n"
OLD = "class Base:\n    @property\n    def b(self):\n        return {k}\n" + CLASS.replace("{k}", "0")


def digest(text, name):
    """Digest of a name in a program typed into an interpreter."""
    space = {"__name__": "__main__", "Base": object}
    exec(compile(text, "<typed>", "exec"), space)
    return object_sha256(space[name])


WAYS = [(CLASS, "Part"), (FACTORY, "part"), (OBJECT, "part"), (PARTIAL, "part"), (OLD, "Part")]


@pytest.mark.parametrize(("text", "name"), WAYS)
def test_other_code_has_another_digest(text, name):
    one, same, other = (digest(text.format(k=k), name) for k in ("1", "1", "5"))
    assert len(one) == 64
    assert one == same != other
    assert digest("\n\n# moved\n" + text.format(k="1"), name) == one


def test_equal_code_has_the_same_digest_in_another_process():
    """Not an address, and not the order of a set, which depends on the process."""
    program = (
        "import hashlib\nfrom fedge.config.registers.typed_code import object_sha256\nBase = object\n"
        + CLASS.format(k="1")
        + "print(object_sha256(Part))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.strip() == digest(CLASS.format(k="1"), "Part")


def test_code_of_a_module_has_none():
    assert object_sha256(subprocess.Popen) == object_sha256({}) == object_sha256(print) == ""


def test_what_contains_itself_has_a_digest():
    """A class that refers to itself, and a closure that is still empty."""
    text = "class Part:\n    pass\nPart.me = Part\n"
    assert len(digest(text, "Part")) == 64
    late = "def make():\n    def part():\n        return x\n    return part\n    x = 1\npart = make()\n"
    assert len(digest(late, "part")) == 64


def test_objects_that_name_each_other_take_no_time():
    """A hundred objects, each of which holds all of them, were 100⁸ steps."""
    crowd = [type("Member", (), {})() for _ in range(100)]
    for member in crowd:
        member.others = crowd

    def code():
        return crowd

    code.__module__ = SCRIPT
    assert object_sha256(code) == object_sha256(code)
