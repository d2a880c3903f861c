"""Large states of a ClientApp's message: in files, while they are not in use.

A SuperNode has a ClientApp started for every message. What Flower has received stays in memory until that
process ends, beside the network, its gradients and the trained model. Here the arrays of a large model lie in
files of the node's own machine (beside its memories, `fedge.client.memory`), and those of the reply, too; the
files have no name any more once the reply is made.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from flwr.app import ArrayRecord, Message

from fedge.client.memory import own_folder
from fedge.config.sections.guard import TransferConfig
from fedge.exchange.content import CONTROL, put_aside
from fedge.process.client_app import is_client_app
from fedge.process.resources.machine import fits_in_memory
from fedge.states.records import entries, record_bytes
from fedge.states.shared import SharedStates

logger = logging.getLogger(__name__)

FOLDER = "states"  # in that of memories, where each run's has a name of 16 digits
_BESIDE = 3  # models in memory beside the message: the network, its gradients, the trained model


@contextmanager
def states_aside(
    message: Message, transfer: TransferConfig, node: Mapping[str, Any]
) -> Iterator[Callable[[Message], object]]:
    """Put the large states of a message into files; yields what does so with those of its reply.

    Nothing happens in a thread of the server's process, or on Ray.

    Args:
        message: for this client.
        transfer: says from which size on.
        node: configuration of its node.
    """
    shared = _files_for(message, transfer, node)
    if shared is None:
        yield lambda reply: None
        return
    try:
        put_aside(message, shared.keep)
        yield partial(put_aside, keep=shared.keep)
    finally:
        shared.close()


def _files_for(message: Message, transfer: TransferConfig, node: Mapping[str, Any]) -> SharedStates | None:
    """Files for the states of a message; None where they stay in memory."""
    if not is_client_app():
        return None
    records = entries(message.content)
    sizes = [record_bytes(record) for record in records.values() if isinstance(record, ArrayRecord)]
    largest, above = max(sizes, default=0), transfer.spill_above_bytes
    if largest <= above:
        return None
    by_memory = transfer.spills_by_memory and CONTROL not in records
    if by_memory and fits_in_memory(sum(sizes) + _BESIDE * largest):
        return None
    folder = own_folder(node) / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        logger.warning("no state files in %s: %s; models stay in memory", folder, error.strerror)
        return None
    shared = SharedStates(folder, in_one_process=True)
    shared.prepare(above, largest, sum(sizes) + largest)
    return shared
