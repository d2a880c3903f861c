"""Small worlds on the virtual clock: real parts all the way, clients that train two numbers in no time."""

import hashlib
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from evaluations import classified
from flwr.clientapp import ClientApp
from torch import nn

from fedge.config.flat import from_run_config
from fedge.config.registers.parts import AVAILABILITY, CLOUD_RULES, DEVICES, SELECTIONS, SERVER_RULES
from fedge.devices.clients.access import ClientAccess, Waiting
from fedge.devices.clients.evaluation import ClockEvaluation
from fedge.devices.clients.lookahead import LookAhead
from fedge.devices.clients.probing import DeviceProbe
from fedge.devices.clients.results import Population
from fedge.devices.population.duration import duration_of
from fedge.devices.procedure import Procedure
from fedge.devices.servers.model_facts import ModelFacts
from fedge.devices.servers.private_buffer import private_sum
from fedge.devices.servers.server import DeviceServer
from fedge.devices.servers.vectors import version_of
from fedge.devices.snapshot import restore, snapshot
from fedge.devices.tiers.groups import ClockGroups
from fedge.devices.tiers.parent import cloud_arguments
from fedge.devices.tiers.servers_above import servers_above
from fedge.devices.world import Listeners, World
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.clients import Clients
from fedge.exchange.content import ARRAYS, arrays_of
from fedge.exchange.evaluate import (
    OWN,
    evaluate_reply,
    models_to_evaluate,
    splits_to_evaluate,
)
from fedge.exchange.round_context import PROBE, RoundContext
from fedge.exchange.train import train_reply
from fedge.process.identity import process_name
from fedge.seeding import Purpose, numpy_stream
from fedge.states.checkpoint import read_checkpoint, write_checkpoint
from fedge.timing.laps import LapClock
from fedge.training.local import TrainResult

START = {"w": np.array([0.5, -1.0], np.float32), "steps": np.array(0)}
WINDOWS = 4  # of a device; unless a test says otherwise, all have the same
OFF = {
    "scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False, "train.local-epochs": 1,
    "hierarchy.num-servers": 1, "cluster.patience": 1,
}  # fmt: skip


class Pair(nn.Module):
    """Two classes, whose logits are the mean of a window times each of the two numbers."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        return x.mean(dim=(1, 2)).unsqueeze(1) * self.w


def facts_of(initial, seed, children, server=0):
    """Facts of the model for rules; children have more of one class, in turn."""
    shares = np.where(np.arange(2) == np.arange(children)[:, None] % 2, 0.75, 0.25)
    return ModelFacts(Pair, initial, (1, 8), shares, seed, server)


def config_of(**changes):
    """The configuration of a small run; "__" stands for the dot in a key, "_" for a dash."""
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in changes.items()}
    of_tree = {"hierarchy.num-servers"} if given.get("hierarchy.tree") else set()
    off = {key: value for key, value in OFF.items() if key not in of_tree}
    return from_run_config({**off, "asynchrony.rule": "fedbuff", "num-server-rounds": 3, **given})


def app(fails=(), losses=None, steps=1, apart=None):
    """Clients: (device, attempt) alone decides what is added; those of `fails` raise an exception.

    In a probe a device adds one of two directions, by `apart` (device → 0 or 1), and a little of its own.

    A job takes `steps` steps; of one that is cut short, what is added depends on how many it takes, too.
    What a device finds of a leaf's model is `losses` (role, device), 0.5 without it.
    """
    made = ClientApp()

    @made.train()
    def train(message, context):
        device = int(context.node_config["partition-id"])
        context = RoundContext.from_message(message)
        attempt, cut = context.leaf_round, context.local_steps
        if (device, attempt) in fails:
            raise RuntimeError(f"device {device}, attempt {attempt}")
        start = arrays_of(message, ARRAYS)
        rng = np.random.default_rng([device, attempt, *([cut] if cut else [])])
        step = rng.normal(size=2).astype(np.float32)
        if context.line == PROBE:
            step = np.array([1.0, 0.0] if not apart or apart(device) else [0.0, 1.0], np.float32) + step / 20
        state = {"w": np.float32(0.9) * start["w"] + step, "steps": start["steps"] + 1}
        return train_reply(message, TrainResult(state, 1.0 + device, cut or steps), WINDOWS, 0.0)

    @made.evaluate()
    def evaluate(message, context):
        device = int(context.node_config["partition-id"])
        return evaluate_reply(message, {
            (role, split): classified(
                np.array([[1, 1], [0, 2]]), losses(role, device) if losses and role != OWN else 0.5
            )
            for role, _ in models_to_evaluate(message) for split in splits_to_evaluate(message)
        })  # fmt: skip

    return made


class Noted:
    """Reports of a procedure."""

    def __init__(self):
        self.results, self.rows, self.jobs = [], [], []

    @property
    def hooks(self):
        """Note everything."""

        def on_evaluation(result, row, laps):
            self.results.append(result)
            self.rows.append(row)
            return False

        return Listeners(on_evaluation, self.jobs.append)


@contextmanager
def world(
    config,
    devices,
    workers=1,
    fleet=None,
    presence=None,
    fails=(),
    seed=3,
    start=None,
    traced=None,
    losses=None,
    apart=None,
    method=None,
):
    """Give (procedure, noted) of a world in which nothing has happened yet.

    Devices stand under leaves in blocks; all jobs are noted unless `traced` says whose. The model at the
    beginning is `start`, by default `START`. Devices with a memory are those of `method`, a
    `remembering.Remembering`; all of them have test windows.
    """
    leaves = config.hierarchy.num_servers
    leaf_of = {device: device * leaves // devices for device in range(devices)}
    who = Population(leaf_of, dict.fromkeys(range(devices), WINDOWS), frozenset(), leaves)
    clock, noted = LapClock(), Noted()
    steps = -(-WINDOWS // config.train.batch_size)
    clients_app = app(fails, losses, steps, apart) if method is None else method.app()
    tested = {0: WINDOWS} if method is None else dict.fromkeys(range(devices), WINDOWS)
    with InProcessGrid(clients_app, devices, {}, workers) as grid:
        clients = Clients(grid, {device: device + 1 for device in range(devices)})
        waiting = Waiting(grid, 30.0, clock, lambda: None)

        def contexts(global_round, leaf_round):
            return RoundContext(seed, global_round, leaf_round, "", "", process_name(), 30.0)

        initial = version_of({name: np.array(array) for name, array in (start or START).items()})
        algorithms = None if method is None else method.at_leaves(who, initial.state)
        access = ClientAccess(waiting, clients, config, contexts, algorithms=algorithms)
        made = fleet or DEVICES.load(config.devices.preset)(
            np.zeros(devices, np.int64),
            numpy_stream(seed, Purpose.DEVICES),
            **config.devices.arguments("preset"),
        )
        there = presence or AVAILABILITY.load(config.devices.availability)(
            devices, seed, **config.devices.arguments("availability")
        )
        rule, arguments = SERVER_RULES.load(config.asynchrony.rule), config.asynchrony.arguments("rule")
        known = frozenset(range(devices)) if traced is None else traced
        servers = [
            DeviceServer(
                initial, rule, arguments, devices // leaves, facts_of(initial, seed, devices, leaf),
                private_sum(config.privacy, seed, leaf, devices),
            )
            for leaf in range(leaves)
        ]  # fmt: skip
        above = above_of(config, initial, devices, seed, servers)
        yield Procedure(
            World(
                config, seed, who, made, there,
                LookAhead(access, who.windows),
                ClockEvaluation(access, tested, 2, dict.fromkeys(range(devices), WINDOWS)), known, clock,
                noted.hooks,
                SELECTIONS.load(config.devices.selection), config.devices.arguments("selection"),
                duration_of(config.devices.duration, config.devices.arguments("duration")),
                probe=DeviceProbe(access, initial, ["w"]),
            ),
            servers,
            above,
            ClockGroups(config, ["w"], seed) if above is not None else None,
            algorithms,
        ), noted  # fmt: skip


def above_of(config, initial, devices, seed, servers):
    """The servers above the leaves, all of the same weight."""
    leaves = len(servers)

    def make(place):
        rule = CLOUD_RULES.load(place.options.cloud_rule)
        arguments = cloud_arguments(rule, place.options.arguments("cloud_rule"))
        facts = facts_of(initial, seed, len(place.leaves), leaves + place.stream)
        return DeviceServer(initial, rule, arguments, len(place.leaves), facts)

    labels = ClockGroups(config, ["w"], seed).labels.tolist() if config.asynchrony.groups else None
    return servers_above(config, servers, [devices * WINDOWS / leaves] * leaves, make, labels)


def carried_out(config, devices, **where):
    """Carry out a small run from its beginning; returns (procedure, noted)."""
    with world(config, devices, **where) as (procedure, noted):
        procedure.begin()
        procedure.run_until(config.num_server_rounds)
        return procedure, noted


def stopped_and_gone_on(config, devices, events, folder, look=lambda procedure: None, workers=2, **where):
    """(procedure, noted) of a run stopped after some events, and gone on with from its checkpoint.

    It goes on in another world, with `workers`. `look` is given the procedure as it was stopped; noted are
    rows and jobs of both parts, and results of the second.
    """
    with world(config, devices, **where) as (procedure, before):
        procedure.begin()
        procedure.run_until(config.num_server_rounds, events=events)
        look(procedure)
        path = write_checkpoint(folder, events, *snapshot(procedure))
    found = read_checkpoint(path)
    with world(config, devices, workers=workers, **where) as (procedure, after):
        restore(procedure, found.groups, found.facts)
        procedure.run_until(config.num_server_rounds)
    after.rows[:0], after.jobs[:0] = before.rows, before.jobs
    return procedure, after


REVIVED = (
    '{"freeze": 1, "warmup": 3, "s_max": 3, "teachers": 2, "steps": 1, "distil_lr": 0.1, "every": 12, '
    '"pool": 100, "latent": 64, "width": 32, "server_s": 0.01}'
)  # distils from the fifth version on, for less than two arrivals' time


def outcome(procedure, noted):
    """Outcome of a run, for comparisons."""
    return {
        "models": [server.version.vector.tobytes() for server in procedure.servers],
        "served": procedure.served.vector.tobytes(),
        "moved": procedure.ledger.moved,
        "counters": [
            {name: array.tolist() for name, array in server.version.counters.items()}
            for server in procedure.servers
        ],
        "rows": noted.rows,
        "jobs": [(row.job.facts(), row.outcome, row.staleness) for row in noted.jobs],
        "staleness": sorted(procedure.ledger.staleness.items()),
        "counts": {name: values.tolist() for name, values in procedure.ledger.counts.items()},
    }


def digest(found):
    """The sha256 of model, curve and histogram of what `outcome` returned."""
    return hashlib.sha256(
        repr([found[name] for name in ("served", "rows", "staleness")]).encode()
    ).hexdigest()


def renamed(config, **changes):
    """A configuration with other fields of its section `asynchrony`."""
    return replace(config, asynchrony=replace(config.asynchrony, **changes))
