"""Work that is done while its owner waits for something else: one job at a time, in order, on a thread."""

import logging
import threading
from collections.abc import Callable
from types import TracebackType

logger = logging.getLogger(__name__)


class Behind:
    """Carries out one job at a time behind its owner's back.

    The owner changes nothing that a job reads before `finish`. Use as a context manager: leaving it waits for
    the last job, and its exception is raised unless another is on its way.

    >>> with Behind() as behind:
    ...     behind.begin(lambda: print("written"))
    written
    """

    def __init__(self) -> None:
        """Have nothing to do."""
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def begin(self, job: Callable[[], object]) -> None:
        """Begin a job, after the one before it; raises that one's exception."""
        self.finish()
        # a daemon: a hanging disk must not delay the end of the process
        self._thread = threading.Thread(target=self._carry_out, args=(job,), name="behind", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until the job, if there is one, is done; raise its exception, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _carry_out(self, job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:  # any error: the owner's to deal with
            self._error = error

    def __enter__(self) -> "Behind":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            self.finish()
        except Exception:
            if error is None:
                raise
            logger.error("what was done behind failed, too", exc_info=True)
