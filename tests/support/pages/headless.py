"""A real browser for tests: headless Chromium, spoken to over its debugging pipe."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_chromium():
    """The path of a Chromium on this machine, or None."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


# Chromium reads commands from file descriptor 3 and answers on 4.
_ON_3_AND_4 = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page in headless Chromium. Use as a context manager.

    Attributes:
        messages: what the page wrote to the console, exceptions and the browser's own complaints.
        requests: every URL that was asked for.
    """

    def __init__(self, executable, profile):
        reads, self._out = os.pipe()
        self._in, writes = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (reads, writes)]  # not 3 or 4 themselves
        flags = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
            f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-c", _ON_3_AND_4, *map(str, ends), executable, *flags],
            pass_fds=ends, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in (reads, writes, *ends):
            os.close(end)
        self._buffer = b""
        self._number = 0
        self._session = None
        self.messages, self.requests, self._events = [], [], []

    def __enter__(self):
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def _call(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self):
        while b"\0" not in self._buffer:
            part = os.read(self._in, 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        line, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(line)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method, params):
        self._events.append(method)
        if method in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.messages.append(params)
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, path, width, height=844, dark=False):
        """Load a file in a window of `width` CSS pixels."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=width < 500,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self._call("Page.navigate", url=Path(path).absolute().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._read()

    def evaluate(self, expression):
        """The value of a JavaScript expression."""
        return self._call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get(
            "value"
        )

    def screenshot(self, path, whole=True):
        """Save the page as PNG."""
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def pdf(self):
        """The printed page."""
        return base64.b64decode(self._call("Page.printToPDF")["data"])
