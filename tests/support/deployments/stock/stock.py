"""A plain Flower app, as its users write one: FedAvg of a linear model; nothing of Fedge.

Client k has its windows in client-k.npz of the folder that the run's option ``data`` names.
"""

import time
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

client = ClientApp()
server = ServerApp()


def network(shape):
    """The model."""
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(int(np.prod(shape[1:])), 2))


def opened(message, context, part):
    """This client's model and windows."""
    torch.set_num_threads(1)
    file = Path(context.run_config["data"], f"client-{context.node_config['partition-id']}.npz")
    with np.load(file) as windows:
        x, y = torch.from_numpy(windows[f"x_{part}"]), torch.from_numpy(windows[f"y_{part}"])
    model = network(x.shape)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return model, x, y


@client.train()
def train(message, context):
    """One epoch of SGD."""
    model, x, y = opened(message, context, "train")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for batch in torch.randperm(len(y)).split(32):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    told = MetricRecord({"num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": told})
    return Message(content, reply_to=message)


@client.evaluate()
def evaluate(message, context):
    """Accuracy on test windows."""
    model, x, y = opened(message, context, "test")
    with torch.no_grad():
        right = int((model(x).argmax(1) == y).sum())
    told = MetricRecord({"accuracy": right / len(y), "num-examples": len(y)})
    return Message(RecordDict({"metrics": told}), reply_to=message)


@server.main()
def main(grid, context):
    """Rounds of FedAvg with all clients; when each has ended stands in ``ended``, a line each."""
    config = context.run_config
    everybody = {"fraction_train": 1.0, "fraction_evaluate": 1.0}
    everybody |= dict.fromkeys(
        ("min_train_nodes", "min_evaluate_nodes", "min_available_nodes"), config["clients"]
    )

    def note(_round, _arrays):
        with open(config["ended"], "a") as file:
            file.write(f"{time.time()}\n")

    with np.load(Path(config["data"], "client-0.npz")) as windows:
        start = ArrayRecord(network(windows["x_train"].shape).state_dict())
    FedAvg(**everybody).start(grid=grid, initial_arrays=start, num_rounds=config["rounds"], evaluate_fn=note)
