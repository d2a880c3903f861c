"""A file of Docker Compose, carried out to its end while its services die and start again by its policy.

As a program in namespaces of its own (`as_said.ALONE`):

    python restarted.py WAY FOLDER ROUNDS [SERVICE=ROUND …]

kills each named service once, after a round, and prints one JSON object: `code` of the run, `run`, its
folder, `starts` of each service, `left`, the deaths that it did not come to, and `said` by the run. What
ends is started again as Docker does for `restart: unless-stopped`: with the same words in the same folder,
after 0.1 s, and after twice as long each further time.
"""

import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from as_said import WAYS, Carried, name_hosts

_FIRST_S, _LIMIT_S = 0.1, 740.0  # a node's ClientApps start anew for each message: minutes of CPU


class Restarting(Carried):
    """Processes of a way, those of its policy started again when they end."""

    def __init__(self, folder, way, rounds):
        """The way's processes, in a folder."""
        super().__init__(folder, rounds)
        self._way, self.starts, self._due = way, Counter(), {}

    def look(self):
        """Start again what has ended for long enough."""
        for name, words, where in self._way.servers:
            if name not in self._way.restarts or self.servers[name].poll() is None:
                continue
            due = self._due.setdefault(name, time.monotonic() + _FIRST_S * 2 ** self.starts[name])
            if time.monotonic() >= due:
                del self._due[name]
                self.starts[name] += 1
                self.servers[name] = self.start(name, words, where)

    def kill(self, name):
        """SIGKILL to a service and all it has started, as the end of a container."""
        os.killpg(self.servers[name].pid, signal.SIGKILL)
        self.servers[name].wait()


def main(name, folder, rounds, *killed):
    """Carry the file out, and print how it ended."""
    folder = Path(folder)
    name_hosts(folder)
    left = [(service, int(after)) for service, _, after in (word.partition("=") for word in killed)]
    log, deadline = folder / "run.out", time.monotonic() + _LIMIT_S
    way = WAYS[name](folder, int(rounds))
    with Restarting(folder, way, int(rounds)) as carried:
        run = carried.carry_out(way)
        while run.poll() is None and time.monotonic() < deadline:
            carried.look()
            if left and f"round {left[0][1]:{len(rounds)}}/{rounds} " in log.read_text():
                carried.kill(left.pop(0)[0])
            time.sleep(0.02)
        code = run.poll()
    made = {path.parents[1].resolve() for path in folder.rglob("final.safetensors")}
    told = {
        "code": code,
        "run": " ".join(map(str, made)),
        "starts": carried.starts,
        "left": left,
        "said": log.read_text(),
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
