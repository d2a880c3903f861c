"""Stock Flower with the same work as a run of Fedge: the app in stock/, on Ray or with SuperNodes."""

import shutil
import statistics
from pathlib import Path

import numpy as np
from deployment import Deployment

from fedge.link.reach import free_ports
from fedge.run.preparation.prepare import deal_data, prepare_config

APP = Path(__file__).parent / "stock"


def write_windows(folder, options, clients):
    """Write each client's windows, as Fedge deals them."""
    prepared = prepare_config({**options, "clients": clients})
    dealt = deal_data(prepared.config, prepared.seed, clients, None)
    folder.mkdir(parents=True)
    for client, (train, _, test) in enumerate(dealt.partition.clients):
        parts = {"train": train, "test": test}
        arrays = {f"x_{part}": dealt.windows.x[rows] for part, rows in parts.items()}
        arrays |= {f"y_{part}": dealt.windows.y[rows] for part, rows in parts.items()}
        np.savez(folder / f"client-{client}.npz", **arrays)


def project(folder, clients, rounds, federation):
    """The table of the app's pyproject.toml, by dotted keys, whose federation "there" is given."""
    shutil.copytree(APP, folder, dirs_exist_ok=True)
    (folder / "README.md").write_text("Stock Flower.\n")
    config = {
        "clients": clients, "rounds": rounds, "data": str(folder.parent / "windows"),
        "ended": str(folder.parent / "ended"),
    }  # fmt: skip
    return {
        "project.name": "stock", "project.version": "1.0.0", "project.description": "",
        "project.license": "Apache-2.0", "tool.flwr.app.publisher": "trial",
        "tool.flwr.app.components.serverapp": "stock:server",
        "tool.flwr.app.components.clientapp": "stock:client",
        "tool.flwr.federations.default": "there",
        **{f"tool.flwr.app.config.{key}": value for key, value in config.items()},
        **{f"tool.flwr.federations.there.{key}": value for key, value in federation.items()},
    }  # fmt: skip


def seconds_of(folder):
    """The seconds of a round, the one in the middle."""
    ended = [float(line) for line in (folder / "ended").read_text().splitlines()]
    return statistics.median(np.diff(ended))


def on_ray(folder, options, clients, rounds):
    """Carry it out with Flower's simulation; returns seconds of a round."""
    write_windows(folder / "windows", options, clients)
    federation = {
        "options.num-supernodes": clients, "options.backend.client-resources.num-cpus": 1,
        "options.backend.client-resources.num-gpus": 0.0,
    }  # fmt: skip
    place = Deployment(folder, {})
    shutil.rmtree(place.app)
    place.write_table(project(place.app, clients, rounds, federation))
    said = place.flwr("run", ".", "there", PYTHONPATH=str(place.app))
    assert (folder / "ended").is_file(), said
    return seconds_of(folder)


def on_supernodes(folder, options, clients, rounds):
    """Carry it out with a SuperLink and Flower's own SuperNodes, TLS and keys; returns seconds of a round."""
    write_windows(folder / "windows", options, clients)
    with Deployment(folder, {}) as place:
        place.register(clients)
        federation = {
            "address": f"127.0.0.1:{place.control}", "root-certificates": str(place.certs / "ca.crt")
        }  # fmt: skip
        shutil.rmtree(place.app)
        place.write_table(project(place.app, clients, rounds, federation))
        for client in range(clients):
            (port,) = free_ports(1)
            place.nodes[client] = place.start(f"node-{client}", [
                "flower-supernode", "--superlink", f"127.0.0.1:{place.fleet}",
                "--root-certificates", place.certs / "ca.crt",
                "--auth-supernode-private-key", place.certs / f"node-{client}",
                "--clientappio-api-address", f"127.0.0.1:{port}",
                "--node-config", f"partition-id={client} num-partitions={clients}",
            ])  # fmt: skip
        said = place.flwr("run", ".", "there", "--stream")
        assert (folder / "ended").is_file(), said
    return seconds_of(folder)
