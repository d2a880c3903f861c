"""State of a network outside its state dict: attributes, unsaved buffers, layers, hooks, frozen parameters.

Examples are a step counter for a schedule, a cache, the last hidden state, a hook, or a layer frozen by a
user's algorithm. A thread uses one network for many clients, so such state of one client would leak to the
next, and results would depend on the order of clients on each thread. Every task therefore begins with the
state of the new network.
"""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

_COMMON_ATTRIBUTES = frozenset(vars(nn.Module()))  # hooks, tables of parameters, the mode: PyTorch's own
_TABLES = tuple(
    name for name, own in vars(nn.Module()).items() if isinstance(own, dict) and name != "_buffers"
)


class Unsaved:
    """Snapshot of a network's state outside its state dict, which can be restored repeatedly."""

    def __init__(self, model: nn.Module) -> None:
        """Take copies; attributes that cannot be copied are never restored."""
        self._modules = list(model.modules())
        memo = self._shared_objects(model)
        self._model = model
        self._kinds = [type(module) for module in self._modules]
        self._tables = [{name: dict(vars(module)[name]) for name in _TABLES} for module in self._modules]
        self._requires_grad = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
        self._names = [frozenset(_attributes_of(module)) for module in self._modules]
        self._attributes = [dict(_copied(_attributes_of(module), memo)) for module in self._modules]
        self._buffers = [
            {name: buffer.clone() for name, buffer in _unsaved_buffers(module)} for module in self._modules
        ]

    @staticmethod
    def _shared_objects(model: nn.Module) -> dict[int, Any]:
        """Objects shared with the copy by identity: modules, parameters, buffers."""
        parts = [*model.modules(), *model.parameters(), *model.buffers()]
        return {id(part): part for part in parts}

    def restore(self) -> None:
        """Restore the network's attributes, as after construction; its state dict is left alone."""
        for module, kind, tables in zip(self._modules, self._kinds, self._tables, strict=True):
            module.__class__ = kind  # a parametrised layer has one of its own
            for name, table in tables.items():
                current = vars(module)[name]
                current.clear()
                current.update(table)
        for parameter, requires_grad in self._requires_grad:
            parameter.requires_grad_(requires_grad)
        memo = self._shared_objects(self._model)
        saved = zip(self._modules, self._names, self._attributes, self._buffers, strict=True)
        for module, names, attributes, buffers in saved:
            current = vars(module)
            for name in _attributes_of(module).keys() - names:
                del current[name]
            current.update(_copied(attributes, memo))
            for name, buffer in buffers.items():
                module._buffers[name] = buffer.clone()


def _attributes_of(module: nn.Module) -> dict[str, Any]:
    """The attributes of a module from its class."""
    return {name: value for name, value in vars(module).items() if name not in _COMMON_ATTRIBUTES}


def _copied(attributes: dict[str, Any], memo: dict[int, Any]) -> Iterator[tuple[str, Any]]:
    """Yield name and copy of each copyable attribute (not open files, nor a step's result)."""
    for name, value in attributes.items():
        with contextlib.suppress(Exception):  # of any user's class
            yield name, copy.deepcopy(value, memo)


def _unsaved_buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield name and buffer of a module's buffers outside its state dict."""
    for name in sorted(module._non_persistent_buffers_set):
        buffer = module._buffers.get(name)
        if buffer is not None:
            yield name, buffer
