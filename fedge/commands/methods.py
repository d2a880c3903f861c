"""``fedge methods``: methods by name, with the memory and messages of each tier."""

import argparse
import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fedge.config.registers.groupings import GROUPINGS
from fedge.config.registers.parts import ALGORITHMS
from fedge.config.registers.register import Register
from fedge.config.registers.traits import NEVER_BY_THRESHOLD, NUMBERED, OFFERS, TRUTH
from hhar.quantity import quantity

if TYPE_CHECKING:
    from fedge.leaf.trial import Tiers

_CLIENTS, _CLOUD = "what clients do", "what the cloud does"
_MODEL, _WINDOW, _CLASSES = "mlp-tiny", (3, 32), 4  # for the trial of a method's tiers


def add_methods(commands: Any) -> None:
    """Add the subcommand ``methods``."""
    methods = commands.add_parser(
        "methods",
        help="list methods by name, or show the state and messages of each tier of one",
        also=("algorithms",),
    )
    methods.add_argument("name", nargs="?", help='a listed method, or "module:Name"')
    methods.set_defaults(command=_methods, needs_room=True)


def _methods(options: argparse.Namespace) -> int:
    """Carry out ``fedge methods``."""
    lines = _list_lines() if options.name is None else _describe_method(options.name)
    print("\n".join(lines))
    return 0


def _list_lines() -> Iterator[str]:
    """Lines of the list."""
    width = max(len(name) for register in (ALGORITHMS, GROUPINGS) for name in register.names)
    for title, register in ((_CLIENTS, ALGORITHMS), (_CLOUD, GROUPINGS)):
        yield f"{title} ({register.option})"
        for entry in register:
            yield f"  {entry.name:{width}}  {entry.doc}"
        yield ""
    yield "for what each tier of a method keeps and sends: fedge methods ditto"


def _describe_method(name: str) -> Iterator[str]:
    """Lines about one method.

    Raises:
        ConfigError: there is no method of this name, or it cannot be used.
    """
    first = _register_of(name)
    entry = first.entry(name)
    yield f"{name}: {entry.doc}" if entry.doc else name
    others = [GROUPINGS] if first is ALGORITHMS and name in GROUPINGS.names else []
    for register in [first, *others]:
        yield f'  {register.option}="{name}"'
        if arguments := _arguments(register.load(name)):
            yield f"  {register.option}-args: {arguments}"
        yield from _client_lines(name) if register is ALGORITHMS else _cloud_lines(name)


def _register_of(name: str) -> Register:
    """Register of a name; for custom code, the register whose base class it has."""
    for register in (ALGORITHMS, GROUPINGS):
        if not register.is_own(name) or register.is_declared(name):
            return register
    if ":" not in name:
        ALGORITHMS.entry(name)  # raises an error with the known names
    from fedge.algorithm.algorithm import Algorithm

    code = ALGORITHMS.load(name)
    return ALGORITHMS if inspect.isclass(code) and issubclass(code, Algorithm) else GROUPINGS


def _arguments(code: Any) -> str:
    """Arguments with defaults of a class and its leaf part, or of a function after a grouping's three."""
    parameters = list(inspect.signature(code).parameters.values())[0 if inspect.isclass(code) else 3 :]
    if part := getattr(code, "leaf", None):
        names = {p.name for p in parameters}
        parameters += [p for p in inspect.signature(part).parameters.values() if p.name not in names]
    optional = (p for p in parameters if p.default is not p.empty)
    return ", ".join(f"{p.name.replace('_', '-')}={p.default!r}" for p in optional)


def _client_lines(name: str) -> Iterator[str]:
    """Lines about the clients and the leaf of a method, from a trial of two rounds."""
    tiers = _try_method(name)
    model = "the model"
    if len(tiers.form.entries) < len(tiers.model):
        model = f"{len(tiers.form.entries)} of the model's {quantity(len(tiers.model), 'entry')}"
    yield f"  client  keeps {_memory_text(tiers.client_keeps, tiers)}"
    arrays = dict.fromkeys(array.partition("/")[0] for array in tiers.form.arrays)
    yield f"          sends {' and '.join([model, *arrays])}"
    if tiers.form.models:
        unseen = ", unseen clients too" if tiers.form.unseen else ""
        yield f"          is tested with the model {' and '.join(tiers.form.models)} of its own{unseen}"
    yield f"  leaf    keeps {_memory_text(tiers.leaf_keeps, tiers)}"
    yield f"          sends {' and '.join(['the model', *tiers.leaf_sends])}"


def _try_method(name: str) -> "Tiers":
    """Tiers of a method, from a trial on generated windows."""
    from torch import Generator

    from fedge.config.flat import from_run_config
    from fedge.data.prepared import DataShape
    from fedge.leaf.trial import tiers_of
    from fedge.run.preparation.examples import examples_of
    from fedge.training.networks.models import build_model

    config = from_run_config({"train.algorithm": name, "train.model": _MODEL, "scaffold.enabled": False})
    shape = DataShape(_WINDOW, _CLASSES)
    network = build_model(_MODEL, _WINDOW, _CLASSES, Generator().manual_seed(0))
    return tiers_of(config, network, *examples_of(shape, None, config.train))


def _memory_text(memory: Mapping[str, Any], tiers: "Tiers") -> str:
    """A memory in words.

    >>> from types import SimpleNamespace
    >>> _memory_text({"v": {"w": 1, "b": 2}, "h": {"w": 1}, "alpha": 0.5}, SimpleNamespace(model=("w", "b")))
    'v (a model), h (1 of its 2 entries), alpha'
    """
    parts = []
    for name, value in memory.items():
        is_state = isinstance(value, Mapping)
        is_model = is_state and len(value) == len(tiers.model)
        part = (
            f" ({len(value)} of its {quantity(len(tiers.model), 'entry')})"
            if is_state and not is_model
            else ""
        )
        parts.append(name + (" (a model)" if is_model else part))
    return ", ".join(parts) or "nothing"


def _required_options(name: str) -> dict[str, Any]:
    """Options required by a grouping, by its traits."""
    required: dict[tuple[str, Any], tuple[str, ...]] = {
        ("cluster.count", "2"): (NUMBERED, NEVER_BY_THRESHOLD),
        ("scenario", "rotate"): (TRUTH,),
        ("gate.enabled", False): (OFFERS,),
    }
    return {
        key: value
        for (key, value), traits in required.items()
        if any(GROUPINGS.has(name, trait) for trait in traits)
    }


def _cloud_lines(name: str) -> Iterator[str]:
    """Lines about the cloud of a method, and about its clients' messages."""
    from fedge.clustering.registry import method_named, sent_quantities
    from fedge.config.flat import from_run_config

    config = from_run_config({"cluster.method": name, **_required_options(name)}).cluster
    method = method_named(config)
    remark = getattr(GROUPINGS.load(name), "told", "") or GROUPINGS.told(name)
    if remark:
        yield f"  {remark}."
    keeps = getattr(GROUPINGS.load(name), "keeps", "") or "nothing of its own"
    yield f"  cloud   keeps {keeps}; compares {method.compares or 'leaves by cluster.signal'}"
    yield f"  client  sends the model{''.join(f', {words}' for words in sent_quantities(config))}"
