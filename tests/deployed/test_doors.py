"""Processes, ports and strangers: every page and file of deploy/, and what strangers learn there.

Word by word, on the addresses and ports that stand there, in namespaces of their own. A stranger is another
account of the same machine, which reaches loopback ports as well, without a certificate or with one of
another authority; it calls every method of every service.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from as_said import ALONE, WAYS, can_be_alone
from support_folders import PYTHONPATH, SUPPORT

OUTSIDE = {9092, 9555}  # what may be reached from other machines: nodes and leaf servers dial these
MORE = {"docs/leaf-servers.md, nodes": {9093}}  # there the second leaf server's, and nobody's Control API
_LOOPBACK = ("127.", "::1", "::ffff:127.")


@pytest.mark.extended
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not can_be_alone(), reason="only root, with namespaces, can be another account")
@pytest.mark.parametrize("way", WAYS)
def test_strangers_learn_nothing_from_what_is_started_as_said(way):
    """In a folder that other accounts may look into, which pytest's own are not."""
    with TemporaryDirectory(prefix="fedge-doors-") as folder:
        Path(folder).chmod(0o755)
        found = carried_out(way, folder)
    doors = {(address, port) for address, port, _ in found["doors"]}
    outside = {port for address, port in doors if not address.startswith(_LOOPBACK)}
    calls = sum(one["calls"] for one in found["strangers"])
    print(f"| {way} | {len(doors)} | {', '.join(map(str, sorted(outside)))} | {calls} | 0 |")
    assert outside
    assert outside <= OUTSIDE | MORE.get(way, set())
    for one in found["strangers"]:
        assert one["learnt"] == {}, one
        if one["port"] in outside:
            assert one["tls"]
            assert one["plain"] == ""
    assert not [key for key in found["keys"] if "/strange/" not in key]
    if any(port == 9093 and address.startswith(_LOOPBACK) for address, port in doors):
        (own,) = [one for one in found["own"] if one["port"] == 9093]
        assert own["learnt"], "the same questions tell the account itself something"


def carried_out(way, folder):
    """Output of `as_said` for a way."""
    done = subprocess.run(
        [*ALONE, sys.executable, str(SUPPORT / "ways" / "as_said.py"), way, folder],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True, text=True, timeout=1700, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
