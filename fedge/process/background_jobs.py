"""Background jobs on a thread, one at a time and in order, while their owner waits for other things."""

import logging
import threading
from collections.abc import Callable
from types import TracebackType

logger = logging.getLogger(__name__)


class BackgroundJob:
    """Runner of one background job at a time.

    The owner must not change data read by a job before `finish`. As a context manager, it waits for the last
    job on exit and raises its exception unless another is propagating.

    >>> with BackgroundJob() as behind:
    ...     behind.begin(lambda: print("written"))
    written
    """

    def __init__(self) -> None:
        """Runner without a job."""
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def begin(self, job: Callable[[], object]) -> None:
        """Start a job once the previous one is done; raises the previous job's exception."""
        self.finish()
        # daemon: a disk that hangs must not delay the process's end
        self._thread = threading.Thread(target=self._carry_out, args=(job,), name="behind", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the job, if there is one, and raise its exception, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _carry_out(self, job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:  # raised later, in the owner's thread
            self._error = error

    def __enter__(self) -> "BackgroundJob":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            self.finish()
        except Exception:
            if error is None:
                raise
            logger.error("the background job failed, too", exc_info=True)
