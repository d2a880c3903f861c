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
    values = "__import__('numpy').eye(2), __import__('pathlib').Path('a'), range(3)"
    text = CLASS.format(k="1") + f"    v = {values}\n"
    program = (
        "import hashlib\nfrom fedge.config.registers.typed_code import object_sha256\nBase = object\n"
        + text
        + "print(object_sha256(Part))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.strip() == digest(text, "Part")


VALUES = {
    "an array": "import numpy\nk = numpy.array([1.0, {k}])",
    "a row of objects": "import numpy\nk = numpy.array(['a', {k}], dtype=object)",
    "a NumPy number": "import numpy\nk = numpy.float32({k})",
    "a tensor": "import torch\nk = torch.tensor([1.0, {k}], requires_grad=True)",
    "a short tensor": "import torch\nk = torch.tensor([{k}], dtype=torch.bfloat16)",
    "a network": "import torch\nk = torch.nn.Linear(2, 1)\ntorch.nn.init.constant_(k.weight, {k})\n"
    "torch.nn.init.zeros_(k.bias)",
    "a range": "k = range({k})",
    "a date": "import datetime\nk = datetime.date(2000 + {k}, 1, 1)",
    "a path": "import pathlib\nk = pathlib.Path('folder{k}')",
    "a decimal": "import decimal\nk = decimal.Decimal({k})",
    "an object with slots": "class Slots:\n    __slots__ = ('k',)\nk = Slots()\nk.k = {k}",
    "a built-in function": "k = (abs, len)[{k} // 5]",
}


@pytest.mark.parametrize("text", VALUES.values(), ids=VALUES)
def test_any_value_of_a_closure_counts(text):
    """Runs of other class weights, another teacher or other paths were one group of a comparison."""
    program = "\ndef make(k):\n    def part(x):\n        return x, k\n    return part\npart = make(k)\n"
    one, same, other = (digest(text.format(k=k) + program, "part") for k in ("1", "1", "5"))
    assert one == same != other


def test_values_without_a_known_content_have_a_digest():
    """A lock, a generator, a sparse tensor."""
    text = (
        "import threading, torch\ndef make(k):\n    def part(x):\n        return x, k\n    return part\n"
        "part = make((threading.Lock(), (n for n in ()), torch.eye(2).to_sparse()))\n"
    )
    assert len(digest(text, "part")) == 64


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
