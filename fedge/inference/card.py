"""What a file of models says about itself, so that it can be used without its run: kept in its header.

A safetensors header takes texts by name (``__metadata__``); this is one of them, JSON by the name "fedge".
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedge.config.option import ConfigError
from fedge.states.files import StateFileError, map_state

KEY = "fedge"
_FORMAT = 1


@dataclass(frozen=True)
class Served:
    """Whom one stored model serves.

    Attributes:
        leaf: number of the leaf.
        clients: that are served it, unseen clients included.
        unseen: clients outside training are served it.
        train_windows: of the leaf's clients.
    """

    leaf: int
    clients: tuple[int, ...]
    unseen: bool
    train_windows: int


@dataclass(frozen=True)
class Card:
    """What is needed to use models.

    Attributes:
        fedge: version that trained them.
        model: name of the network, as `train.model` has it.
        arguments: of the network, by keyword.
        code: package, version and sha256 of a network of the user's own; empty for Fedge's.
        input_shape: of one window (C, T) or image (C, H, W).
        dtype: of raw windows: "float32", or "uint8", brightness 0..255, which is divided by 255.
        channels: their names, in order.
        classes: their names, in the order of the logits.
        mean, std: of each channel of the training windows, by which they are scaled; empty without scaling.
        about: rate and units of the data, where they say so.
        served: stored model ("leaf-0", "unseen-0") → whom it serves.
    """

    fedge: str
    model: str
    arguments: Mapping[str, Any]
    code: Mapping[str, str]
    input_shape: tuple[int, ...]
    dtype: str
    channels: tuple[str, ...]
    classes: tuple[str, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    served: Mapping[str, Served] = field(default_factory=dict)

    def metadata(self) -> dict[str, str]:
        """Return it as a safetensors header takes it."""
        return {KEY: json.dumps({"format": _FORMAT, **asdict(self)}, ensure_ascii=False)}


def read_card(path: Path) -> Card:
    """Return what a file of models says about itself.

    Raises:
        ConfigError: it is no such file, or says nothing.
    """
    try:
        text = map_state(path).metadata.get(KEY)
    except StateFileError as error:
        raise ConfigError(f"{error}; repeat the run") from error
    if text is None:
        raise ConfigError(
            f"{path} must say what its models are, but says nothing: an earlier Fedge wrote it; "
            f"repeat the run "
            f"with this one"
        )
    try:
        said = json.loads(text)
        served = {
            name: Served(int(s["leaf"]), tuple(s["clients"]), bool(s["unseen"]), int(s["train_windows"]))
            for name, s in said["served"].items()
        }
        texts: Any = {key: tuple(said[key]) for key in ("input_shape", "channels", "classes", "mean", "std")}
        plain = {key: said[key] for key in ("fedge", "model", "arguments", "code", "dtype", "about")}
        return Card(**plain, **texts, served=served)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} must say what its models are, but {type(error).__name__}: {error} is no way of "
            f"this Fedge to "
            f"say it; use the version that wrote it"
        ) from error
