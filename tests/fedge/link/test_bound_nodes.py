"""Keys of partitions, and how a run learns them."""

from pathlib import Path

import pytest

from fedge.config.registers.option import ConfigError
from fedge.link import bound_nodes
from fedge.link.bound_nodes import (
    BoundNodes,
    bind_nodes,
    export_bindings,
    forget_bindings,
    nodes_registered,
    partition_of_key,
)

SAID = """Loading project configuration...
Success
✅ SuperNode 14309781201793216443 registered successfully.
"""


def test_a_key_is_of_the_partition_in_its_name():
    names = ("node-3.pub", "node-0.pub", "node-x.pub", "node-3x.pub", "superlink.pub")
    assert [partition_of_key(Path("certs") / name) for name in names] == [3, 0, None, None, None]


def test_flower_says_which_node_a_key_is():
    assert nodes_registered(SAID) == [14309781201793216443]
    assert nodes_registered("Public key already in use") == []


def test_a_run_knows_who_is_bound_also_when_keys_come_later(tmp_path, monkeypatch):
    monkeypatch.delenv(bound_nodes._VARIABLE, raising=False)
    bound = BoundNodes()
    assert bound(7) is None
    environment = {}
    export_bindings(environment, tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert bound(7) is None
    bind_nodes(tmp_path, {7: 0, 2**64 - 1: 1})
    bind_nodes(tmp_path, {9: 2})
    assert [bound(node) for node in (7, 2**64 - 1, 9, 8)] == [0, 1, 2, None]
    forget_bindings(tmp_path)
    forget_bindings(tmp_path)
    assert bound(7) is None


@pytest.mark.parametrize(
    "line", ["", "7", "7 0 1", "seven 0", "7 -1", "7 0\0", "٧ 0", "9" * 5000 + " 0", "\x1b[2J"]
)
def test_a_damaged_binding_is_one_line(tmp_path, monkeypatch, line):
    """Were it left out, the node could claim any partition."""
    bind_nodes(tmp_path, {7: 0})
    path = tmp_path / bound_nodes._NAME
    path.write_text(f"{path.read_text()}{line}\n")
    monkeypatch.setenv(bound_nodes._VARIABLE, str(path))
    with pytest.raises(ConfigError, match=r"must hold lines NODE PARTITION.*; start") as refused:
        BoundNodes()(7)
    assert str(refused.value).isprintable()
