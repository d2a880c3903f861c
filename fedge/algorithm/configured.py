"""Construction of the configured algorithm and leaf part."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fedge.algorithm.algorithm import Algorithm
from fedge.algorithm.leaf_part import LeafPart
from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.hooks import refuse_misspelt
from fedge.config.registers.option import ConfigError, arguments_of, shown
from fedge.config.registers.parts import ALGORITHMS
from fedge.config.registers.register import refuse_wrong_signature
from fedge.config.sections.train import TrainConfig


def algorithm_of(config: TrainConfig) -> Algorithm:
    """The algorithm of a run's clients.

    Raises:
        ConfigError: the class cannot be imported or constructed, or is no algorithm.
    """
    return _build_algorithm(config.algorithm, config.algorithm_args, ALGORITHMS.load(config.algorithm))


@lru_cache(maxsize=4)
def _build_algorithm(name: str, arguments: str, code: Any) -> Algorithm:
    """The algorithm; `code` is part of the cache key, for notebooks that redefine the class."""
    description = f"train.algorithm {name}"
    if not (inspect.isclass(code) and issubclass(code, Algorithm)):
        raise ConfigError(
            f"{description} must be a class derived from fedge.algorithm.Algorithm, but is {shown(code)}; "
            f"see docs/own-method.md"
        )
    if code.train is Algorithm.train:
        raise ConfigError(
            f"{description} must have a method train(client), but has none; see docs/own-method.md"
        )
    part = code.leaf
    if part is not None and not (inspect.isclass(part) and issubclass(part, LeafPart)):
        raise ConfigError(
            f"leaf of {description} must be a class derived from fedge.algorithm.LeafPart, but is "
            f"{shown(part)}; see docs/own-method.md"
        )
    refuse_misspelt(code, Algorithm, description)
    if part is not None:
        refuse_misspelt(part, LeafPart, f"leaf of {description}")
    keywords = _keywords(arguments)
    of_leaf = {key for key in keywords if part is not None and _accepts(part, key)}
    for_client = {key: value for key, value in keywords.items() if _accepts(code, key) or key not in of_leaf}
    leaf_parameters = () if part is None else tuple(inspect.signature(part).parameters)
    refuse_wrong_signature(code, description, "train.algorithm-args", for_client, (), leaf_parameters)
    made: Algorithm = _instantiate(code, description, for_client)
    if "leaf" in vars(made):
        raise ConfigError(
            f"{description} must name its leaf part in the class, as leaf = MyLeafPart, but sets it in an "
            f"object, where nothing reads it; move it there (arguments of both go into train.algorithm-args)"
        )
    return made


def leaf_part_of(config: TrainConfig) -> LeafPart:
    """A new leaf part of a run's algorithm; the default `LeafPart` for methods without one.

    Raises:
        ConfigError: construction fails.
    """
    part = type(algorithm_of(config)).leaf or LeafPart
    keywords = {k: v for k, v in _keywords(config.algorithm_args).items() if _accepts(part, k)}
    return _instantiate(part, f"leaf of train.algorithm {config.algorithm}", keywords)


def _keywords(arguments: str) -> Mapping[str, Any]:
    """Arguments of a table as Python keyword arguments."""
    return {k.replace("-", "_"): v for k, v in arguments_of(arguments, "train.algorithm-args").items()}


def _accepts(code: Any, key: str) -> bool:
    """Whether a class takes a keyword argument."""
    parameters = inspect.signature(code).parameters
    return key in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _instantiate(code: Any, description: str, arguments: Mapping[str, Any]) -> Any:
    try:
        return code(**arguments)
    except own_errors() as error:
        raise ConfigError(
            f"{description} cannot be made: {own_error(error)}; fix it, or change train.algorithm-args"
        ) from error
