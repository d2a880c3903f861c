"""Fedge: a simulator for hierarchical, clustered federated learning on Flower and Ray."""

import os
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import lazy_loader as lazy

if TYPE_CHECKING:
    from fedge.algorithm.algorithm import Algorithm as Algorithm
    from fedge.algorithm.algorithm import Sent as Sent
    from fedge.algorithm.client import Client as Client
    from fedge.algorithm.descent import Fit as Fit
    from fedge.algorithm.leaf_part import LeafPart as LeafPart
    from fedge.callbacks.callback import Callback as Callback
    from fedge.clustering.cloud_part import CloudPart as CloudPart
    from fedge.clustering.cloud_part import Family as Family
    from fedge.clustering.likeness.evidence import Evidence as Evidence
    from fedge.clustering.registry import Grouping as Grouping
    from fedge.clustering.registry import method as method
    from fedge.clustering.signals import signal as signal
    from fedge.compression.compressor import Compressor as Compressor
    from fedge.config.registers.option import ConfigError as ConfigError
    from fedge.datasets.frames import from_pandas as from_pandas
    from fedge.datasets.images import from_images as from_images
    from fedge.datasets.images import from_partitions as from_partitions
    from fedge.devices.population.fleet import Fleet as Fleet
    from fedge.devices.servers.rules import Arrival as Arrival
    from fedge.launch.simulate import simulate as simulate
    from fedge.records.reading.reader import RunData as RunData
    from fedge.records.reading.reader import load_run as load_run
    from fedge.report.compare import compare as compare
    from fedge.serving.gate import Paired as Paired
    from fedge.tasks.task import Score as Score
    from fedge.tasks.task import Task as Task
    from fedge.trackers.tracker import Tracker as Tracker
    from hhar.windows.window_file import Windows as Windows

# loaded on first use: torch takes seconds, and most commands do not need it
_load_attribute, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "algorithm.algorithm": ["Algorithm", "Sent"],
        "algorithm.client": ["Client"],
        "algorithm.descent": ["Fit"],
        "algorithm.leaf_part": ["LeafPart"],
        "callbacks.callback": ["Callback"],
        "clustering.cloud_part": ["CloudPart", "Family"],
        "clustering.likeness.evidence": ["Evidence"],
        "clustering.registry": ["Grouping", "method"],
        "clustering.signals": ["signal"],
        "compression.compressor": ["Compressor"],
        "config.registers.option": ["ConfigError"],
        "datasets.frames": ["Windows", "from_pandas"],
        "datasets.images": ["from_images", "from_partitions"],
        "devices.population.fleet": ["Fleet"],
        "devices.servers.rules": ["Arrival"],
        "launch.simulate": ["simulate"],
        "records.reading.reader": ["RunData", "load_run"],
        "report.compare": ["compare"],
        "serving.gate": ["Paired"],
        "tasks.task": ["Score", "Task"],
        "trackers.tracker": ["Tracker"],
    },
)


def __getattr__(name: str) -> Any:
    """A public part of the package, or its version, loaded on first use."""
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    try:
        return _load_attribute(name)
    except AttributeError:
        raise AttributeError(f"fedge has no {name}{_import_hint(name)}", name=name) from None


def _import_hint(name: str) -> str:
    """Import of a public name from another package, as the end of an error; empty for other names."""
    rooms = [] if name.startswith("_") else [module.name for module in iter_modules(__path__) if module.ispkg]
    for package in ("hhar", *(f"{__name__}.{room}" for room in rooms)):
        if name in getattr(import_module(package), "__all__", ()):
            return f": from {package} import {name}"
    return ""


if "FEDGE_CAPTURE" in os.environ:  # `fedge profile` traces this process's allocations from here on
    from fedge.process.capture import begin_capture

    begin_capture()

# `flwr run` imports this package to check that the app exists: the only moment at which a run that cannot
# work can be refused before Flower starts Ray and its workers.
if Path(sys.argv[0] if sys.argv else "").name == "flwr" and sys.argv[1:2] == ["run"]:
    from fedge.flower import uses_superlink
    from fedge.launch.preflight import check_flwr_run
    from fedge.process.endings.channels import exit_despite_channels
    from fedge.process.endings.parent import die_with_parent, tie_children_to_parent
    from fedge.process.endings.reaper import start_reaper

    check_flwr_run(sys.argv[2:])
    exit_despite_channels()
    if not die_with_parent() and not uses_superlink():  # their SuperLink must stay
        start_reaper()  # a simulation follows this process only once it has loaded Fedge
    tie_children_to_parent()
