"""Fedge: a simulator for hierarchical, clustered federated learning on Flower and Ray."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lazy_loader as lazy

if TYPE_CHECKING:
    from fedge.config.registers.option import ConfigError as ConfigError
    from fedge.datasets.frames import from_pandas as from_pandas
    from fedge.datasets.images import from_images as from_images
    from fedge.datasets.images import from_partitions as from_partitions
    from fedge.launch.simulate import simulate as simulate
    from fedge.records.reading.reader import load_run as load_run
    from fedge.report.compare import compare as compare

# loaded on first use: torch takes seconds, and most commands do not need it
_on_first_use, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "config.registers.option": ["ConfigError"],
        "datasets.frames": ["from_pandas"],
        "datasets.images": ["from_images", "from_partitions"],
        "launch.simulate": ["simulate"],
        "records.reading.reader": ["load_run"],
        "report.compare": ["compare"],
    },
)


def __getattr__(name: str) -> Any:
    """A part of the package, or its version, on first use."""
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    return _on_first_use(name)


if "FEDGE_CAPTURE" in os.environ:  # `fedge profile` traces this process's allocations from here on
    from fedge.process.capture import begin_capture

    begin_capture()

# `flwr run` imports this package to see whether the app is there: the only moment at which a run that cannot
# work can be refused before Flower starts Ray and its workers.
if Path(sys.argv[0] if sys.argv else "").name == "flwr" and sys.argv[1:2] == ["run"]:
    from fedge.flower import uses_superlink
    from fedge.launch.preflight import check_flwr_run
    from fedge.process.endings.channels import exit_despite_channels
    from fedge.process.endings.parent import be_followed, follow_at_once
    from fedge.process.endings.reaper import start_reaper

    check_flwr_run(sys.argv[2:])
    exit_despite_channels()
    if not follow_at_once() and not uses_superlink():  # whose SuperLink is to stay
        start_reaper()  # a simulation follows this process only once it has loaded Fedge
    be_followed()
