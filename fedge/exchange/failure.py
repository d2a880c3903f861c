"""Failure of a client in an exchange: its kind, for counting, and details.

Clients' own texts are read only here; from then on each is one printable line.
"""

from dataclasses import dataclass

from flwr.app import Message

from fedge.config.registers.failing import message_of, place_by_name, without_folders
from fedge.config.registers.option import shown
from fedge.privacy.marks import WHO_FAILED, Leaving
from fedge.process.escape import printable

EXCEPTION = "exception"
NO_REPLY = "no reply"
WORKER_DIED = "worker died"
NODE_GONE = "node gone"
NODE_FAILED = "node failed"
LOSS_NOT_FINITE = "loss not finite"
MEMORY_LOST = "memory lost"
_REJECTED = "rejected: "
FEWER_AT_ONCE = "free some memory, or let fewer clients run at a time (client-resources)"
_WORDS = {
    EXCEPTION: "{detail}",
    NO_REPLY: "{kind} {detail}",
    WORKER_DIED: "{kind}: {detail}",
    NODE_GONE: "{kind}: {detail}",
    NODE_FAILED: "{kind}: {detail}",
}
LEAVING: Leaving = {"error": WHO_FAILED}
LOST = 201  # code of an error in place of a missing reply
_LONGEST = 300  # characters of a detail
_LONGEST_OWN = 240  # an error with its place, around which engines add their own text
_LONGEST_REASON = 20_000  # characters of an error reply to read, half of them from its end


@dataclass(frozen=True)
class Failure:
    """A failure of one client, described for people.

    Attributes:
        kind: kind of failure, for counting.
        detail: one printable line of at most 300 characters.
    """

    kind: str
    detail: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", printable(self.kind))
        object.__setattr__(self, "detail", printable(self.detail[:_LONGEST])[:_LONGEST])

    def __str__(self) -> str:
        """Description of the failure, for logs and summaries."""
        if self.kind in _WORDS:
            return _WORDS[self.kind].format(kind=self.kind, detail=self.detail)
        return f"{self.kind} ({self.detail})" if self.detail else self.kind


def reason_of(reply: Message) -> str:
    """Text of an error reply, of bounded length; a client can send anything."""
    reason = reply.error.reason
    if not isinstance(reason, str):
        return "" if reason is None else f"its error has {shown(reason)} in place of words"
    if len(reason) <= _LONGEST_REASON:
        return reason
    half = _LONGEST_REASON // 2
    return f"{reason[:half]}\n{reason[-half:]}"


def exception_failure(reason: str | None) -> Failure:
    """Failure by an exception at the client: its message without traceback."""
    lines = [line.strip() for line in (reason or "").replace("\\n", "\n").splitlines() if line.strip()]
    informative = (
        [line for line in lines if "Error" in line and "ray::" not in line] or lines or ["unknown reason"]
    )
    return Failure(EXCEPTION, informative[-1].lstrip("<'\"( ").removesuffix("'>").removesuffix('">').rstrip())


def words_of(error: BaseException) -> str:
    """The type and message of an exception, even if its own methods fail.

    For an error in a user's code, one line with its place, short enough not to be cut by `Failure`.
    """
    words = f"{type(error).__name__}: {message_of(error)}"
    words, place = without_folders(words, error), place_by_name(error)
    if not place or place in words:
        return words
    line, most = " ".join(words.split()), _LONGEST_OWN - len(place)
    return f"{line if len(line) <= most else line[: most - 2] + ' …'}{place}"


def timeout_failure(timeout_s: float) -> Failure:
    """Failure to reply within `timeout_s` seconds."""
    return Failure(NO_REPLY, f"within {timeout_s:g} s, which is guard.client-timeout")


def limit_in(text: str | None) -> float | None:
    """Seconds from a text, positive and finite; None if malformed.

    >>> [limit_in(text) for text in ("5", "0.5", "1.2.3", "not a number", "nan", "-1", None)]
    [5.0, 0.5, None, None, None, None, None]
    """
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if 0 < seconds < float("inf") else None


def dead_worker_failure() -> Failure:
    """Failure by the end of the client's process."""
    return Failure(WORKER_DIED, "its process was killed, ran out of memory or crashed")


def next_step(failure: Failure, is_node: bool) -> str:
    """Next step for the user after a failure, as the end of a sentence; empty if the failure names its own.

    Args:
        failure: failure of a client at its first call.
        is_node: whether the client is a node of a deployment, with its own output.

    >>> next_step(exception_failure("KeyError: 'a'"), is_node=False)
    '; fix the cause, and start again'
    """
    if failure.kind == WORKER_DIED:
        return f"; {FEWER_AT_ONCE}"
    if ";" in failure.detail:
        return ""
    return "; see the output of its node" if is_node else "; fix the cause, and start again"


def lost_node_failure() -> Failure:
    """Failure by the silence of a SuperNode."""
    return Failure(NODE_GONE, "its SuperNode was ended, crashed, or cannot be reached")


def reported_node_failure(detail: str) -> Failure:
    """Failure reported by the client's SuperNode, which is still connected."""
    return Failure(NODE_FAILED, detail)


def rejection_failure(kind: str, detail: str = "") -> Failure:
    """Failure by a refused reply."""
    return Failure(_REJECTED + kind, detail)


def nonfinite_loss_note(place: str) -> Failure:
    """Note on a client's evaluation of a diverged model."""
    return Failure(LOSS_NOT_FINITE, place)
