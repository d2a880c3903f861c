"""Links of leaf servers, at work in threads of this process."""

import threading
from contextlib import contextmanager


@contextmanager
def serving(links, answering, timeout_s=20.0):
    """Let links live in threads; all have ended at the end."""
    threads = [
        threading.Thread(target=link.serve, args=(each, timeout_s))
        for link, each in zip(links, answering, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for link in links:
            link.stop()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
