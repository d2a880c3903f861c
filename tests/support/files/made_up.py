"""Windows and results of a round, made up for tests of the simulator."""

import numpy as np

from fedge.cloud.step import CloudStep
from fedge.exchange.failure import EXCEPTION, Failure
from fedge.rounds.measurements.results import ClientResult, LeafResult, RoundResult
from fedge.serving.gate import GateResult
from hhar.windows.window_file import Windows


def make_windows(rows, classes=3):
    """Windows from rows (user, device or None, session or None, class); x holds the row's number."""
    user, device, session, y = zip(*rows, strict=True)
    x = np.arange(len(rows), dtype=np.float32)[:, None, None]
    return Windows(
        x=x,
        y=np.array(y, dtype=np.int64),
        user=np.array(user),
        device=None if device[0] is None else np.array(device),
        session=None if session[0] is None else np.array(session),
        classes=tuple("pqrstu"[:classes]),
        channels=("acc_x",),
    )


def make_result(global_round=1, decisions=("accepted", "rejected"), failures=None, cloud=True):
    """One global round of two leaves: clients 0 and 1 under leaf 0, client 2 under leaf 1."""
    labels = np.array([0, 1])
    similarity = np.array([[1.0, 0.25], [0.25, 1.0]])
    offers = [None, None]
    gates = [GateResult(d, 0.5, None if d == "off" else 0.75, d == "accepted") for d in decisions]
    return RoundResult(
        global_round=global_round,
        clients=[
            ClientResult(0, 0, 10, 1.0, 4, 0.5, 0.9, {"macro_f1": 0.25}, 1.5),
            ClientResult(1, 0, 30, 2.0, 4, 1.0, 0.3, {"macro_f1": 1.0}, 2.5),
            ClientResult(2, 1, 20, None, 0, None, None, {}, None),
        ],
        leaves=[
            LeafResult(0, 0, gates[0], 0.75, 0.6, {"macro_f1": 0.7}, 2, 40),
            LeafResult(1, 1, gates[1], None, None, {}, 1, 20),
        ],
        cloud=CloudStep("weights", labels, similarity, 0.7, True, offers) if cloud else None,
        clients_ok=3 - len(failures or {}),
        failures={client: Failure(EXCEPTION, reason) for client, reason in (failures or {}).items()},
        uplink_bytes=1000,
        downlink_bytes=2000,
    )
