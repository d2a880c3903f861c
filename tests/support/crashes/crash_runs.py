"""Short runs of eight configurations, in processes that fork from one that has loaded everything."""

import csv
import faulthandler
import json
import os
import traceback

import numpy as np

ROUNDS = 3
CLIENTS = 6
BASE = {
    "report": False, "run-name": "run", "num-server-rounds": ROUNDS, "seed": 3, "hierarchy.num-servers": 2,
    "train.model": "linear", "train.local-epochs": 1, "train.batch-size": 16, "data.guard-windows": 0,
}  # fmt: skip
CONFIGURATIONS = {
    "default": {"cluster.tau": 0.3, "train.model": "mlp-tiny", "checkpoint.models": "2,best"},
    "fedge": {
        "hierarchy.num-servers": 3, "cluster.signal": "affinity", "cluster.method": "agglomerative",
        "cluster.count": "auto", "cluster.level": 0.5, "cluster.patience": 2, "cluster.probe-every": 1,
        "gate.enabled": False, "personal.leaf-rounds": 1, "personal.every": 2,
    },
    "levels2": {"scaffold.levels": 2, "gate.enabled": False, "hierarchy.leaf-rounds": 2},
    "fedadam": {"leaf.strategy": "fedadam", "scaffold.enabled": False, "train.model": "mlp-tiny"},
    "dp": {
        "privacy.kind": "server-fixed", "privacy.noise-multiplier": 0.5, "scaffold.enabled": False,
    },
    "partial": {
        "hierarchy.fraction-train": 0.67, "cluster.every": 2, "checkpoint.every": 2,
        "checkpoint.models": "1,3,best",
    },
    "ifca": {
        "cluster.method": "ifca", "cluster.count": "2", "gate.enabled": False, "scaffold.enabled": False,
    },
    "unseen": {"partition.unseen-clients": 1, "scenario": "rotate", "personal.unseen-clients": "cluster"},
}  # fmt: skip
RAISED = 70  # what a process ends with in which something was raised
_LIMIT_S = 300  # only what hangs takes longer, also on a busy machine


def write_data(path):
    """Write windows of six users that a softmax regression can tell apart."""
    from hhar.windows.window_file import Windows, save_windows

    rng = np.random.default_rng(0)
    y = np.tile(np.repeat(np.arange(3), 10), CLIENTS)
    x = rng.normal(size=(len(y), 3, 8)) + y[:, None, None]
    user = np.repeat([f"u{k}" for k in range(CLIENTS)], 30)
    save_windows(
        path, Windows(x.astype(np.float32), y, user, None, None, ("p", "q", "r"), ("acc_x", "acc_y", "acc_z"))
    )


def carry_out(config):
    """Carry out a run in this process; returns its outcome."""
    from fedge.engine.federation import Federation
    from fedge.launch import simulate
    from fedge.launch.preflight import check

    federation = Federation(CLIENTS)
    prepared = check(config, federation)
    with open(os.devnull, "w") as nowhere:
        return simulate.run_in_process(config, federation, 1, nowhere, prepared=prepared)


def here(work, limit_s=_LIMIT_S):
    """Do `work` in this process, as `forked` does: the memory that a new one copies takes twice as long."""
    faulthandler.dump_traceback_later(limit_s, exit=True)
    try:
        return 0, str(work() or "")
    except BaseException:
        return RAISED, traceback.format_exc()[-4000:]
    finally:
        faulthandler.cancel_dump_traceback_later()


def forked(work, limit_s=_LIMIT_S):
    """Do `work` in a process of its own; returns what it ended with and what it returned or raised."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        code = RAISED
        try:
            if limit_s:  # its timer does not outlive another fork
                faulthandler.dump_traceback_later(limit_s, exit=True)
            text = work()
            os.write(writer, str(text or "").encode())
            code = 0
        except BaseException:
            os.write(writer, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(code)
    os.close(writer)
    said = b""
    while more := os.read(reader, 65536):
        said += more
    os.close(reader)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), said.decode(errors="replace")


def comparable(folder):
    """The bytes that must be equal in equal runs, columns of times left out."""
    names = ("checkpoints/final.safetensors", "clusters.jsonl", "metrics/confusion.json", "partition.csv")
    found = {name: (folder / name).read_bytes() if (folder / name).is_file() else None for name in names}
    for name in ("global_rounds", "leaf_rounds", "clients"):
        path = folder / "metrics" / f"{name}.csv"
        rows = list(csv.reader(path.read_text().splitlines())) if path.is_file() else [[]]
        kept = [i for i, column in enumerate(rows[0]) if "second" not in column]
        found[name] = [[row[i] for i in kept] for row in rows]
    found["manifest.json"] = manifest_of(folder)
    found["files"] = sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("messages-")
    )  # fmt: skip
    return found


def manifest_of(folder):
    """The manifest without its times, and without what only one that went on has."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError):
        return None
    timed = [name for name in manifest.get("outputs", {}) if name.startswith("metrics/") and "rounds" in name]
    outputs = {
        k: v for k, v in manifest.get("outputs", {}).items() if k not in (*timed, "metrics/clients.csv")
    }
    return {
        **{k: v for k, v in manifest.items() if k not in ("started", "ended", "resumed", "process")},
        "outputs": outputs,
    }


def differences(folder, expected):
    """Names of the results that differ."""
    found = comparable(folder)
    return [
        f"{name}: {sorted(set(found[name]) ^ set(expected[name]))}" if name == "files" else name
        for name in expected if found[name] != expected[name]
    ]  # fmt: skip
