"""Failure of a client in an exchange: a kind to count by, and the details.

Clients' texts about themselves come in here, and nowhere else: each is one printable line from then on.
"""

from dataclasses import dataclass

from flwr.app import Message

from fedge.config.registers.failing import place_by_name, without_folders
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
_LONGEST_OWN = 240  # of an error with its place, around which engines have words of their own
_LONGEST_REASON = 20_000  # of an error reply to read, half of them its last


@dataclass(frozen=True)
class Failure:
    """A failure of one client; its text is for people.

    Attributes:
        kind: by which failures are counted.
        detail: printable, in one line, of at most 300 characters.
    """

    kind: str
    detail: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", printable(self.kind))
        object.__setattr__(self, "detail", printable(self.detail[:_LONGEST])[:_LONGEST])

    def __str__(self) -> str:
        """Words of the failure, for logs and summaries."""
        if self.kind in _WORDS:
            return _WORDS[self.kind].format(kind=self.kind, detail=self.detail)
        return f"{self.kind} ({self.detail})" if self.detail else self.kind


def reason_of(reply: Message) -> str:
    """Words of an error reply: any client's text, of bounded length."""
    reason = reply.error.reason
    if not isinstance(reason, str):
        return "" if reason is None else f"its error has {shown(reason)} in place of words"
    if len(reason) <= _LONGEST_REASON:
        return reason
    half = _LONGEST_REASON // 2
    return f"{reason[:half]}\n{reason[-half:]}"


def raised(reason: str | None) -> Failure:
    """The failure of a client with an exception: its message without wrapping and traceback."""
    lines = [line.strip() for line in (reason or "").replace("\\n", "\n").splitlines() if line.strip()]
    telling = (
        [line for line in lines if "Error" in line and "ray::" not in line] or lines or ["unknown reason"]
    )
    return Failure(EXCEPTION, telling[-1].lstrip("<'\"( ").removesuffix("'>").removesuffix('">').rstrip())


def words_of(error: BaseException) -> str:
    """The kind and the message of an exception, also of a broken one.

    One from a user's own code is one line with its place, which survives the shortening of a `Failure`.
    """
    try:
        words = f"{type(error).__name__}: {error}"
    except BaseException:  # its own code runs here: nothing in it is meant to end anything
        words = f"{type(error).__name__}: its message cannot be told"
    words, where = without_folders(words, error), place_by_name(error)
    if not where or where in words:
        return words
    line, most = " ".join(words.split()), _LONGEST_OWN - len(where)
    return f"{line if len(line) <= most else line[: most - 2] + ' …'}{where}"


def no_reply_within(timeout_s: float) -> Failure:
    """The failure of a client after more than so many seconds."""
    return Failure(NO_REPLY, f"within {timeout_s:g} s, which is guard.client-timeout")


def limit_in(text: str | None) -> float | None:
    """Seconds in a text, positive and finite; None if there are none.

    >>> [limit_in(text) for text in ("5", "0.5", "1.2.3", "not a number", "nan", "-1", None)]
    [5.0, 0.5, None, None, None, None, None]
    """
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if 0 < seconds < float("inf") else None


def worker_died() -> Failure:
    """The failure of a client after the end of its process."""
    return Failure(WORKER_DIED, "its process was killed, ran out of memory or crashed")


def node_gone() -> Failure:
    """The failure of a client with a silent SuperNode."""
    return Failure(NODE_GONE, "its SuperNode was ended, crashed, or cannot be reached")


def node_failed(detail: str) -> Failure:
    """The failure of a client reported by its present SuperNode."""
    return Failure(NODE_FAILED, detail)


def rejected(kind: str, detail: str = "") -> Failure:
    """The failure of a client with a refused reply."""
    return Failure(_REJECTED + kind, detail)


def loss_not_finite(where: str) -> Failure:
    """Note on a client's evaluation of a diverged model."""
    return Failure(LOSS_NOT_FINITE, where)
