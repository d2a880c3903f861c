"""A Flower ClientApp that always replies to a message, or raises an exception with the reason.

Flower 1.25 does not handle three possible acts of a client. ``sys.exit()`` ends its worker process, with code
0, for good; returning ``None`` leaves the server waiting until its timeout; any other object than a reply
ends the sending thread. Here these become exceptions. A client that never returns would hold its worker
forever; here its worker process ends at the time limit, and Ray notices at once and starts another
(`fedge.engine.ray_workers`).
"""

import faulthandler
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedge.config.registers.failing import place_by_name, without_folders
from fedge.config.registers.option import ConfigError
from fedge.exchange.evaluate import EVALUATE
from fedge.exchange.failure import words_of
from fedge.exchange.round_context import RoundContext, asking_server
from fedge.exchange.train import TRAIN
from fedge.process.identity import process_name
from fedge.process.output import limit_client_output
from fedge.process.persistent_process import begin_message_of, note_failure

_LONGEST = 10_000  # characters of an exception's text
_LONGEST_CAUSE = 300
_OF_GPU_MEMORY = (
    "CUDA out of memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)  # fmt: skip
_NO_GPU_MEMORY = (
    "the GPU has no memory left for this client; lower train.batch-size, let fewer clients train on a GPU at "
    "a time (client-resources.num-gpus, or --workers in process; fedge doctor says how many fit), or set "
    "train.device=cpu"
)
_LONGEST_S = 1e6  # limit of the timer


class ClientError(RuntimeError):
    """Client without a reply. One line."""


class GuardedApp(ClientApp):
    """A ClientApp whose every call returns a reply or raises an Exception within the time limit."""

    def __call__(self, message: Message, context: Context) -> Message:
        """Run the app."""
        with _time_limit(message, context):
            return guarded_reply(super().__call__, message, context)


def guarded_reply(app: Callable[[Message, Context], Message], message: Message, context: Context) -> Message:
    """Reply of `app` to a message.

    Meanwhile the client's output and log are limited (`fedge.process.output`).

    Raises:
        ClientError: it returned something else, tried to end the process, raised an overlong text, or failed
            in the user's code, whose place is given.
        Exception: any other of the client's.
    """
    begin_message_of(context.run_id)
    try:
        with limit_client_output(_client_of(context)):
            reply = app(message, context)
    except Exception as error:
        note_failure()
        words = words_of(error)
        if is_out_of_gpu_memory(words):
            raise ClientError(f"{_NO_GPU_MEMORY} ({words.splitlines()[0][:_LONGEST_CAUSE]})") from None
        if len(words) > _LONGEST:
            raise ClientError(words[:_LONGEST]) from None
        if isinstance(error, ConfigError):  # an error of a part, which names its place and folder
            raise ConfigError(without_folders(str(error), error)) from error
        if place_by_name(error):  # Flower passes on only the message
            raise ClientError(words) from error
        raise
    except BaseException as error:  # mainly SystemExit: nothing here may end the worker
        note_failure()
        words = f"{_exception_text(error)}: the client tried to end its process{place_by_name(error)}"
        raise ClientError(words) from None
    if not isinstance(reply, Message):
        raise ClientError(f"the client returned {type(reply).__name__} instead of a reply")
    if reply.metadata.reply_to_message_id != message.metadata.message_id:
        raise ClientError("the client returned a message that does not reply to the one it was sent")
    return reply


def is_out_of_gpu_memory(words: str) -> bool:
    """Whether an exception, as text, reports exhausted GPU memory."""
    return any(part in words for part in _OF_GPU_MEMORY)


def _client_of(context: Context) -> int:
    """Partition id, or −1 for a node without one."""
    partition = context.node_config.get("partition-id", -1)
    return partition if isinstance(partition, int) else -1


def _exception_text(error: BaseException) -> str:
    """An exception as text; its own code runs here, which may raise anything."""
    try:
        return f"{type(error).__name__}({error})"
    except BaseException:
        return type(error).__name__


@contextmanager
def _time_limit(message: Message, context: Context) -> Iterator[None]:
    """End this worker process at the time limit of the round context.

    A note in the data folder exists while the client works. A timer outside the interpreter lock writes into
    it the place at which the client was at the time limit, and ends the process; a process killed from
    outside leaves the note empty. In the server's own process (`fedge.engine.inprocess`), threads are watched
    instead.
    """
    if message.metadata.message_type not in (TRAIN, EVALUATE):
        yield
        return
    if process_name() == asking_server(message):
        yield
        return
    round_context = RoundContext.from_message(message)
    with _keep_note(round_context.data_folder, context) as file:
        faulthandler.dump_traceback_later(min(round_context.timeout_s, _LONGEST_S), exit=True, file=file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


@contextmanager
def _keep_note(data_folder: str, context: Context) -> Iterator[TextIO]:
    """Keep a note in the run's data folder while a client works; yields the file for its last words.

    Without a data folder, no other process sees this machine's files, and last words go to the client's
    output.
    """
    if not data_folder:
        yield sys.stderr
        return
    note = _note_path(data_folder, int(context.node_config["partition-id"]))
    with note.open("w") as file:
        try:
            yield file
        finally:
            note.unlink(missing_ok=True)


def last_position(data_folder: str, client: int) -> str | None:
    """Place at which a client was when its worker process ended at the time limit.

    Empty if the process was ended from outside, None if the client was not working. Without a data folder
    there are no notes (`_keep_note`), and every dead client counts as having been working.
    """
    if not data_folder:
        return ""
    note = _note_path(data_folder, client)
    try:
        words = note.read_text(encoding="utf-8", errors="replace")
        note.unlink()
    except OSError:
        return None
    return words.strip()


def _note_path(data_folder: str, client: int) -> Path:
    """File that exists while a client works in a worker process."""
    return Path(data_folder) / f"at-work-{client}"
