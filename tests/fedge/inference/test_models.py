import numpy as np
import pytest
import torch

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.data.prepared import open_client, write_client_data
from fedge.inference.models import Models
from fedge.inference.network import Classifier
from fedge.records.outputs import MODELS
from fedge.run.preparation.prepare import deal_data
from fedge.states.files import map_state, write_state


@pytest.fixture(scope="module")
def models(used_run):
    return Models(used_run[1].folder / MODELS)


@pytest.fixture(scope="module")
def dealt(used_run, tmp_path_factory):
    """Windows and partition of the run, and the folder of what its clients saw."""
    deal = deal_data(from_run_config(used_run[0]), 3, 9, None)
    folder = tmp_path_factory.mktemp("dealt") / "data"
    write_client_data(folder, deal.windows, deal.partition, True)
    return deal, folder


def test_accuracy_on_raw_test_windows_is_the_one_in_the_tables(used_run, dealt):
    """Every client, known or unseen, with the model that it is served."""
    run, (deal, _) = used_run[1], dealt
    last = run.clients.filter(run.clients["global_round"] == 2)
    for client, accuracy in zip(last["client"], last["test_accuracy"], strict=True):
        test = deal.partition.clients[client][2]
        found = run.predict(deal.windows.x[test], client=client)
        assert np.mean(found.labels == deal.windows.y[test]) == accuracy
        assert np.allclose(found.probabilities.sum(axis=1), 1)


def test_scaling_has_the_bits_that_clients_saw(models, dealt):
    deal, folder = dealt
    classifier = models.classifier(models.choose(leaf=0))
    raw = torch.from_numpy(deal.windows.x[deal.partition.clients[0][0]])
    scaled = (raw - classifier.mean) / classifier.std
    assert np.array_equal(scaled.numpy(), open_client(str(folder), 0).train[0])


@pytest.mark.parametrize(
    ("asked", "name", "words"),
    [
        ({"leaf": 1}, "leaf-1", "leaf 1's model for the clients that it knows"),
        ({"leaf": 1, "unseen": True}, "unseen-1", "leaf 1's model for clients outside training"),
        ({"client": 3}, "leaf-1", "which client 3 is served"),
        ({"client": 8}, "unseen-2", "which client 8 is served"),
    ],
)
def test_who_is_served_which_model(models, asked, name, words):
    choice = models.choose(**asked)
    assert choice.name == name
    assert words in choice.reason


def said_otherwise(models, path, before, after, count=-1, change=lambda name, array: array):
    """Write the models as if they said something else about themselves."""
    state = map_state(models._path)
    text = state.metadata["fedge"].replace(before, after, count)
    assert text != state.metadata["fedge"] or before == after
    entries = {name: change(name, np.array(state[name])) for name in state}
    write_state(path, entries, metadata={"fedge": text})
    return Models(path)


def test_somebody_outside_training_gets_what_leaves_of_most_windows_serve(models, tmp_path):
    """Leaves 1 and 2 serve the same model; then leaf 0's has by far the most windows."""

    def two(name, array):
        return np.full_like(array, name.startswith("unseen-0")) if name.startswith("unseen-") else array

    choice = said_otherwise(models, tmp_path / "a", "", "", change=two).choose()
    assert choice.name == "unseen-1"
    assert (
        "by leaves 1, 2, which have the most training windows (2 models differ: --leaf chooses)"
        in choice.reason
    )
    windows = f'"train_windows": {models.card.served["leaf-0"].train_windows}'
    more = said_otherwise(models, tmp_path / "b", windows, '"train_windows": 999', 2, two)
    assert more.choose(unseen=True).name == "unseen-0"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"leaf": 3}, "leaf must be one of the run's, 0 to 2, but is 3"),
        ({"leaf": -1}, "leaf must be one of the run's, 0 to 2, but is -1"),
        ({"client": 9}, "client must be one of the run's, 0 to 8, but is 9"),
        ({"client": 1, "leaf": 0}, "--client goes without --leaf and --unseen"),
        ({"client": 1, "unseen": True}, "--client goes without --leaf and --unseen"),
    ],
)
def test_who_is_not_there_is_refused(models, asked, words):
    with pytest.raises(ConfigError, match=words):
        models.choose(**asked)


def test_a_network_that_cannot_be_found_or_has_changed_is_one_line(models, tmp_path):
    x = np.zeros((1, 2, 16), np.float32)
    gone = said_otherwise(models, tmp_path / "a", "mlp-tiny", "my_gone:Net")
    with pytest.raises(ConfigError, match=r"train\.model my_gone:Net cannot be imported"):
        gone.predict(x, gone.choose(leaf=0))
    other = said_otherwise(models, tmp_path / "b", "mlp-tiny", "linear")
    with pytest.raises(ConfigError, match="its code makes others; bring back the code"):
        other.predict(x, other.choose(leaf=0))
    assert models.code_note() == ""


class Failing(torch.nn.Module):
    """A network that takes no windows of some kind, as an embedding does with a token of no row."""

    def forward(self, x):
        raise IndexError("index out of range\nin self")


@pytest.mark.parametrize("way", ["predict", "fitting"])
def test_a_networks_own_error_is_one_line(models, monkeypatch, way):
    card = models.card
    monkeypatch.setattr(
        Models, "classifier", lambda self, choice: Classifier(Failing(), card.input_shape, (), (), "float32")
    )
    x = np.zeros((2, *card.input_shape), np.float32)
    with pytest.raises(ConfigError) as caught:
        models.predict(x, models.choose()) if way == "predict" else models.fitting(x)
    assert str(caught.value).startswith(
        f"train.model {card.model} cannot take these windows: IndexError: index out of range in self"
    )
    assert str(caught.value).endswith("; give windows like those of training")
    assert "\n" not in str(caught.value)
