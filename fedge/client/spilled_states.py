"""Large states of a ClientApp's messages, kept in files while not in use.

A SuperNode starts a ClientApp for every message. What Flower has received stays in memory until that process
ends, besides the network, its gradients and the trained model. Here the arrays of large models, in messages
and replies, are moved to files on the node's own machine (beside its memories, `fedge.client.memory`). The
files are unlinked once the reply is made.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from flwr.app import ArrayRecord, Message

from fedge.client.memory import own_folder
from fedge.config.sections.guard import TransferConfig
from fedge.exchange.content import CONTROL, store_large_states
from fedge.process.client_app import is_client_app
from fedge.process.resources.machine import fits_in_memory
from fedge.states.records import entries, record_bytes
from fedge.states.state_files import SharedStates

logger = logging.getLogger(__name__)

FOLDER = "states"  # in the folder of memories, where each run's folder has a name of 16 digits
_MODEL_COPIES = 3  # models in memory besides the message: the network, its gradients, the trained model


@contextmanager
def states_in_files(
    message: Message, transfer: TransferConfig, node: Mapping[str, Any]
) -> Iterator[Callable[[Message], object]]:
    """Move a message's large states to files; yields a function for the same with its reply.

    Has no effect in a thread of the server's process, or on Ray.

    Args:
        message: message to this client.
        transfer: section `transfer`, with the limit on size.
        node: configuration of its node.
    """
    shared = _files_for(message, transfer, node)
    if shared is None:
        yield lambda reply: None
        return
    try:
        store_large_states(message, shared.keep)
        yield partial(store_large_states, keep=shared.keep)
    finally:
        shared.close()


def _files_for(message: Message, transfer: TransferConfig, node: Mapping[str, Any]) -> SharedStates | None:
    """Files for the states of a message; None if they stay in memory."""
    if not is_client_app():
        return None
    records = entries(message.content)
    sizes = [record_bytes(record) for record in records.values() if isinstance(record, ArrayRecord)]
    largest, above = max(sizes, default=0), transfer.spill_above_bytes
    if largest <= above:
        return None
    by_memory = transfer.spills_by_memory and CONTROL not in records
    if by_memory and fits_in_memory(sum(sizes) + _MODEL_COPIES * largest):
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
