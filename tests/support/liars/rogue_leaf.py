"""A leaf server as a process that lies in every answer, or one that is never heard of: for tests/deployed.

python rogue_leaf.py LEAF ADDRESS CERTIFICATES FOLDER lies|away
"""

import json
import sys
import time
from itertools import count
from pathlib import Path

from leaf_servers import host_of

from fedge.edge.packets import orders
from fedge.link import dial
from fedge.link.dial import Link, Refused
from fedge.link.frames import Packet, chunks_of

AWAY_S = 3600.0
GARBAGE = "garbage"  # kind of an answer that goes as bytes that are no packet


def with_book(answer, **changes):
    """An answer whose book says something else."""
    facts = json.loads(json.dumps(dict(answer.facts)))
    facts["book"] |= changes
    return Packet(answer.kind, facts, answer.states)


LIES = (
    lambda answer, note: with_book(answer, bytes=[float("nan"), 0]),
    lambda answer, note: with_book(answer, failures=[[0, "exception", "\x1b[2J\x1b]0;x\x07"]]),
    lambda answer, note: (note({"kind": "\x1b[2J", "back": [0], "asked": [], "failed": []}), answer)[1],
    lambda answer, note: with_book(answer, train_loss=[[99, 1.0]]),
    lambda answer, note: Packet(GARBAGE),
    lambda answer, note: with_book(answer, calls=["x" * 1000] * 10**5),
    lambda answer, note: Packet("\x1b[2J", {"words": "\x1b[2J"}),
)


class Rogue:
    """Answers as an honest leaf server would, but for what it says."""

    def __init__(self, host, mode):
        self.host, self.mode, self.numbers = host, mode, count()

    def __getattr__(self, name):
        return getattr(self.host, name)

    def answer(self, packet, note):
        found = self.host.answer(packet, note)
        if packet.kind not in (orders.TRAIN, orders.PROBE, orders.EVALUATE) or found.kind != orders.DONE:
            return found
        if self.mode == "away":
            time.sleep(AWAY_S)
        return LIES[next(self.numbers) % len(LIES)](found, note)


def chunks(packet):
    """Give a packet in chunks, or bytes that are none."""
    return iter([b"H\xff{not a head", b"H"]) if packet.kind == GARBAGE else chunks_of(packet)


def main(leaf, address, certificates, folder, mode):
    dial.chunks_of = chunks
    rogue = Rogue(host_of(Path(folder), int(leaf)), mode)
    while not served(Link(address, Path(certificates), int(leaf)), rogue):
        time.sleep(0.2)


def served(link, rogue):
    """Serve; tell whether the cloud has said that it is over. It comes back, whatever the cloud says."""
    try:
        link.serve(rogue, 600.0)
    except Refused as error:
        print(error, flush=True)
        return False
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
