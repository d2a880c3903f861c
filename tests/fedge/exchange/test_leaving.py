"""Records that leave a client are those that its modules list: in every reply of whole runs."""

import io

import pytest
from flwr.app import ArrayRecord
from small_runs import small_config

from fedge.client_app import app as client_app
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange import train
from fedge.exchange.content import METRICS
from fedge.exchange.leaving import LEAVING, quantities
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import train_messages, train_reply
from fedge.privacy.marks import Mark, UnmarkedError, quantity_of
from fedge.run.run import run
from fedge.training.local import TrainResult


@pytest.mark.whole_runs
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scaffold__enabled": False, "train__algorithm": "apfl"},
        {"scaffold__enabled": False, "privacy__kind": "client-adaptive", "privacy__noise_multiplier": 0.1},
        {"cluster__method": "flux", "cluster__count": "2"},
        {"cluster__signal": "cross-loss"},
    ],
)
def test_every_entry_of_every_reply_has_a_mark(tmp_path, changes):
    """By content, not by what the client's code says: replies are looked through as the server gets them."""
    seen = set()

    def app(message, context):
        reply = client_app(message, context)
        for name, record in reply.content.items():
            within = [name] if isinstance(record, ArrayRecord) or name == "kept" else list(record)
            seen.update(quantity_of(entry, LEAVING) for entry in within)
        return reply

    config = small_config(tmp_path, **changes)
    with InProcessGrid(app, 9, config, 1) as grid:
        assert run(grid, config, "inprocess", {}, lambda _: io.StringIO()).status == "completed"
    assert len(seen) >= 6
    assert seen <= set(quantities())


def test_a_reply_with_something_more_cannot_be_made(monkeypatch):
    """A number that nobody has marked stops whoever adds it, at the client, on the first call."""
    context = RoundContext(1, 1, 1, "", "", "", 1.0)
    (question,) = train_messages([1], ArrayRecord(), context)
    done = TrainResult({}, 0.5, 3)
    assert METRICS in train_reply(question, done, 4, 0.1).content
    monkeypatch.setattr(train, "LOSS", "mood")
    with pytest.raises(UnmarkedError, match="mood leaves clients without a mark"):
        train_reply(question, done, 4, 0.1)


def test_all_that_is_plain_is_said_of_a_private_run():
    plain = [quantity.words for quantity in quantities() if quantity.mark("server-fixed") is Mark.PLAIN]
    for words in ("losses", "scores", "numbers of windows", "who failed", "mean and std of raw windows"):
        assert words in plain
