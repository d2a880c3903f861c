"""A ClientApp some of whose clients lie, for any engine: `fedge.client_app` with what a plan says in between.

FEDGE_LIES names a file with the plan, as JSON, which whoever carries out runs writes anew before each:

    what     "first": the first answer is a lie; "group": each liar's is the lie of its own seed, or has the
             statistics of "sums" where it is one of "odd", or is an error where it is one of "absent";
             "sums": its statistics are lies; "errors": work is answered by error replies; "noise": megabytes
             are printed; "gone" and "none": nothing of the kind
    works    whether the work itself is done; it fails otherwise
    seed     which lie; seeds: of each liar of a group
    shared   whether clients have the server's windows, and not their own
    liars    partition ids

FEDGE_DEALT names the folder of `fedge deal` where clients own their windows.
"""

import json
import logging
import os
import sys
from pathlib import Path

from flwr.app import ConfigRecord, Error, Message, RecordDict
from lies import error_reply, first_answer

from fedge.client.guarded_app import GuardedApp
from fedge.client_app import evaluate_round, hello, train_round
from fedge.exchange.content import CONFIG, config_of
from fedge.exchange.evaluate import EVALUATE
from fedge.exchange.hello import HELLO

NOISE = "\x1b[31mnoise " * 100 + "\n"
TOLD = "told"  # file beside the plan: a byte for each lie that was told
LARGE = 40 * 2**20  # characters of noise


def lie(message, context, call_next):
    """Flower mod: carry out the plan."""
    client = context.node_config["partition-id"]
    plan = json.loads(Path(os.environ["FEDGE_LIES"]).read_text())
    context.node_config.pop("data-folder", None)  # a node keeps what it has from run to run
    if (dealt := os.environ.get("FEDGE_DEALT")) and not plan.get("shared"):
        context.node_config["data-folder"] = f"{dealt}/client-{client}"
    if client not in plan["liars"]:
        return call_next(message, context)
    if message.metadata.message_type == HELLO:
        reply = call_next(message, context)
        return LIES.get(plan["what"], lambda reply, *_: reply)(reply, plan, client, message)
    if plan["what"] == "noise":
        make_noise()
    if plan["what"] == "errors":
        return failed_otherwise(message, plan["seed"], client)
    if not plan.get("works"):
        return Message(Error(2, "RuntimeError: sensor unplugged"), reply_to=message)
    return call_next(message, context)


def answered_otherwise(reply, plan, client, asked):
    """A first answer that is the lie of a plan."""
    if client in plan.get("absent", ()):
        return Message(Error(2, "RuntimeError: no sensor"), reply_to=asked)
    if plan["what"] == "group" and str(client) not in plan["seeds"]:
        return with_sums(reply, plan) if client in plan.get("odd", ()) else reply
    note_lie()
    _, spoil = first_answer(plan["seeds"][str(client)] if plan["what"] == "group" else plan["seed"])
    return with_record(reply, spoil(dict(config_of(reply))))


def with_record(reply, values):
    """A reply with other values, of any type, as over a wire that checks nothing."""
    record = ConfigRecord()
    record.__dict__["_data"] = values
    reply.content = RecordDict({CONFIG: record})
    return reply


def with_sums(reply, plan, *_):
    """A first answer whose statistics are as a plan has them: "mean" or "std", and a number."""
    told = json.loads(config_of(reply)["told"])
    sums, (which, number) = told["sums"], plan["sums"]
    if which == "mean":
        sums["mean"] = [number for _ in sums["mean"]]
    else:
        sums["spread"] = [sums["count"] * number * number for _ in sums["spread"]]
    return with_record(reply, {**dict(config_of(reply)), "told": json.dumps(told)})


LIES = {"first": answered_otherwise, "group": answered_otherwise, "sums": with_sums}


def failed_otherwise(message, seed, client):
    """An error reply, another one for each message of a run."""
    note_lie()
    at = 2 * int(config_of(message)["leaf_round"]) + (message.metadata.message_type == EVALUATE)
    code, reason = error_reply(10_000 * seed + 10 * at + client)
    made = Error.__new__(Error)
    made.__dict__.update(_code=code, _reason=reason)
    return Message(made, reply_to=message)


def note_lie():
    """Count a lie, whichever process tells it."""
    with Path(os.environ["FEDGE_LIES"]).with_name(TOLD).open("ab") as file:
        file.write(b".")


def make_noise():
    """Print and log tens of megabytes."""
    part = NOISE * (LARGE // len(NOISE) // 40)
    for _ in range(20):
        print(part)
        sys.stderr.write(part)
    logging.getLogger("sensor").warning(part * 10)


app = GuardedApp(mods=[lie])
app.query("hello")(hello)
app.train()(train_round)
app.evaluate()(evaluate_round)
