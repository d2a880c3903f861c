"""Checks of a run's Ray cluster: does it answer, and does a client fit on its machines?"""

import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from fedge.config.registers.option import ConfigError
from fedge.engine.federation import Federation
from fedge.engine.loopback import attaches
from fedge.process.python import python_words

_QUERY_S = 60.0
_QUERY_SCRIPT = """
import json, sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
print(json.dumps([node["Resources"] for node in ray.nodes() if node["Alive"]]))
"""


def address_of(init_args: Mapping[str, Any]) -> str:
    """Address of the cluster named by a federation or by RAY_ADDRESS."""
    address = init_args.get("address")
    return str(address) if address not in (None, "auto") else os.environ.get("RAY_ADDRESS", "auto")


def words_of_cluster(init_args: Mapping[str, Any]) -> str:
    """Command-line argument naming a run's cluster; empty if the run starts its own Ray.

    >>> words_of_cluster({"address": "10.0.0.1:6379"})
    ' --address 10.0.0.1:6379'
    """
    return f" --address {shlex.quote(address_of(init_args))}" if attaches(init_args) else ""


def refuse_missing_on_cluster(federation: Federation) -> None:
    """Raise ConfigError if no machine of the cluster has a client's resources.

    Flower itself would wait forever.
    """
    refuse_oversized_clients(federation, machines(address_of(federation.init_args)))


def refuse_oversized_clients(federation: Federation, nodes: Sequence[Mapping[str, float]]) -> None:
    """Raise ConfigError if no machine, in the form of `machines`, has the resources of a client."""
    needed = {"CPU": federation.num_cpus, "GPU": federation.num_gpus}
    if not any(all(node.get(kind, 0) >= amount for kind, amount in needed.items()) for node in nodes):
        capacities = "; ".join(
            f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in nodes
        )
        raise ConfigError(
            f"options.backend.client-resources must fit on one machine of the cluster, but are "
            f"{federation.num_cpus:g} CPUs and {federation.num_gpus:g} GPUs, and its machines have "
            f"{capacities}; change num-cpus or num-gpus"
        )


def machines(address: str) -> Sequence[Mapping[str, float]]:
    """Resources of every live machine of a cluster, by Ray's names: CPU, GPU, …

    Queried from another process, because this one must not attach.

    Raises:
        ConfigError: the cluster does not answer.
    """
    try:
        result = subprocess.run(
            python_words("-c", _QUERY_SCRIPT, address),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_QUERY_S,
            check=False,
        )
        if result.returncode == 0:
            resources: Sequence[Mapping[str, float]] = json.loads(result.stdout.strip().splitlines()[-1])
            return resources
        reason = result.stderr.strip().splitlines()[-1:] or ["no reason given"]
    except subprocess.TimeoutExpired:
        reason = [f"no answer in {_QUERY_S:g} s"]
    raise ConfigError(
        f"RAY_ADDRESS must be a running Ray cluster, but {address!r}: {reason[0]}; start it, or remove "
        f"the address"
    )
