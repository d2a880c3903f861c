"""Leaf servers as processes (``fedge leaf``) and the cloud they connect to (``fedge run --leaves``)."""

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from fedge.client_app import app as client_app
from fedge.config.flat import to_run_config
from fedge.config.registers.engines import LEAVES
from fedge.config.registers.option import ConfigError
from fedge.config.topology import clients_per_leaf, leaf_numbers_below
from fedge.edge.engine import EdgeEngine
from fedge.edge.host import LeafHost
from fedge.edge.packets.hellos import check_hello
from fedge.engine.federation import Federation
from fedge.engine.inprocess import InProcessGrid
from fedge.launch.client_threads import client_threads
from fedge.launch.leaf_servers.start_up import FOR_EVER_S, say, serve_runs
from fedge.link.dial import Link
from fedge.link.frames import LinkError, Packet
from fedge.link.gate import WELCOME, LeafGate
from fedge.process.versions import versions
from fedge.run.preparation.parts import code_of_parts
from fedge.run.preparation.prepare import Prepared
from fedge.run.run import Outcome, run
from fedge.run.site import open_site
from fedge.states.checkpoint import FOLDER, rounds_kept
from hhar.quantity import quantity


def run_with_leaves(
    run_config: Mapping[str, Any],
    federation: Federation,
    prepared: Prepared,
    address: str,
    certificates: Path,
    owns_process: bool = False,
    terminal: TextIO | None = None,
    owners: bool = False,
) -> Outcome:
    """Carry out a checked run as the cloud of leaf servers, which connect to `address`.

    Args:
        run_config: Flower's flat mapping.
        federation: federation with the number of clients.
        prepared: results of the check.
        address: HOST:PORT to listen on.
        certificates: folder made by `fedge certs`.
        owns_process: whether the process ends with the run.
        terminal: stream for progress lines; None for standard output.
        owners: whether clients of leaf servers own their windows.

    Raises:
        ConfigError: a certificate or the address cannot be used.
    """
    sizes = clients_per_leaf(prepared.config.hierarchy, federation.num_supernodes)

    def open_terminal(_: Path) -> TextIO:
        return terminal or sys.stdout or open(os.devnull, "w")

    with _open_gate(address, certificates, len(sizes), prepared) as gate:
        print(
            f"waiting for {quantity(len(sizes), 'leaf server')} at {gate.address}", file=terminal, flush=True
        )
        facts = _owners_facts(prepared, federation) if owners else None
        engine = EdgeEngine(gate, sizes, facts, _resume_arguments(gate.address, certificates, owners))
        fields = {**federation.describe(), "leaves": len(sizes)}
        try:
            outcome = run(engine, run_config, LEAVES.name, fields, open_terminal, owns_process, prepared)
            _dismiss(engine, outcome)
        except ConfigError as error:
            engine.dismiss(str(error))
            raise
        finally:
            engine.close()
    return outcome


def _open_gate(address: str, certificates: Path, leaves: int, prepared: Prepared) -> LeafGate:
    """Start listening for leaf servers."""
    welcome = Packet(WELCOME, {"versions": versions()})
    leaves_below = leaf_numbers_below(prepared.config.hierarchy)
    try:
        return LeafGate(address, certificates, leaves, welcome, leaves_below, check_hello)
    except LinkError as error:
        raise ConfigError(
            f"--leaves must be a free address of this machine, but {error}; choose another"
        ) from error


def _dismiss(engine: EdgeEngine, outcome: Outcome) -> None:
    """Notify leaf servers of the end of the run; if it can be resumed, they wait for this instead."""
    if outcome.status in ("completed", "partial"):
        engine.dismiss()
    elif outcome.folder is None or not rounds_kept(outcome.folder / FOLDER):
        engine.dismiss(outcome.reason or "see the cloud")


def _resume_arguments(address: str, certificates: Path, owners: bool) -> str:
    """Arguments for `fedge resume` to connect the run to its leaf servers again."""
    return " " + shlex.join(["--leaves", address, "--certs", str(certificates), *["--owners"] * owners])


def _owners_facts(prepared: Prepared, federation: Federation) -> dict[str, Any]:
    """Facts of a run needed by leaf servers to ask clients about their own windows."""
    config = to_run_config(prepared.config)
    return {
        "config": config,
        "parts": code_of_parts(prepared.config),
        "seed": prepared.seed,
        "clients": federation.num_supernodes,
    }


def serve_leaf(options: argparse.Namespace) -> int:
    """Carry out ``fedge leaf``; returns the exit code."""
    folder = options.folder or Path(f"leaf-{options.leaf}")
    link = Link(options.cloud, options.certs, options.leaf, say=say)

    def make_engine(
        run_config: Mapping[str, Any], num_clients: int, partitions: Sequence[int]
    ) -> InProcessGrid:
        count, client_config = client_threads(run_config, options.workers, len(partitions))
        return InProcessGrid(client_app, num_clients, client_config, count, partitions)

    host = LeafHost(
        partial(
            open_site, folder, options.leaf, make_engine, trust_code=options.trust_code, data=options.data
        )
    )

    def serve_run() -> bool:
        link.serve(host, options.wait or FOR_EVER_S, host.most_bytes, host.keep)
        print(host.end_description, flush=True)
        return bool(host.refused)

    def close() -> None:
        link.stop()
        host.close()

    return serve_runs(options, folder, f"leaf server {options.leaf}", serve_run, close)
