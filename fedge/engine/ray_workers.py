"""What Fedge changes about Flower's Ray workers: one that dies is started again.

Flower 1.25 puts a dead worker back among the free ones, where it fails every message that it gets. Ray can
start it again by itself, but Flower does not ask for that; the only way to ask is a private attribute of
Ray's, so its absence in another version is said aloud. Called by `fedge.client_app`, which Flower loads
before it makes its workers.
"""

import logging
import sys

logger = logging.getLogger(__name__)

_ACTORS = "flwr.simulation.ray_transport.ray_actor"


def restart_dead_workers() -> bool:
    """Let Ray start a worker again whenever one dies; tell whether that was possible.

    False without a word where Flower's Ray engine is not loaded: then there are no such workers.
    """
    module = sys.modules.get(_ACTORS)
    if module is None:
        return False
    options = getattr(getattr(module, "ClientAppActor", None), "_default_options", None)
    if not isinstance(options, dict):
        logger.warning(
            "this version of Flower or Ray hides the options of its workers; one that dies is not replaced"
        )
        return False
    options["max_restarts"] = -1
    return True
