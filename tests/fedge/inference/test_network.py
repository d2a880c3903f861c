import numpy as np
import torch
from torch import nn

from fedge.inference.network import Classifier, probabilities


def made(mean, std, dtype="float32"):
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    return Classifier(network, (2, 2), mean, std, dtype)


def test_windows_are_scaled_by_hand():
    classifier = made((1.0, 2.0), (2.0, 4.0))
    x = np.array([[[1, 3], [2, 10]]], np.float32)
    logits = classifier.network(torch.tensor([[[0.0, 1.0], [0.0, 2.0]]]))
    assert np.array_equal(probabilities(classifier, x), torch.softmax(logits, 1).detach().numpy())


def test_brightness_is_from_0_to_1_whatever_type_it_has():
    classifier = made((), (), "uint8")
    x = np.array([[[0, 51], [102, 255]]], np.uint8)
    with torch.no_grad():
        whole = classifier(torch.from_numpy(x)).numpy()
    floats = probabilities(classifier, (x / 255).astype(np.float32))
    assert np.allclose(whole, floats, atol=1e-7)
    assert np.allclose(probabilities(classifier, x), whole, atol=1e-7)


def test_many_windows_are_as_each_by_itself_and_none_are_none():
    classifier = made((1.0, 2.0), (2.0, 4.0))
    x = np.random.default_rng(0).normal(size=(600, 2, 2)).astype(np.float32)
    found = probabilities(classifier, x)
    assert found.shape == (600, 3)
    assert np.allclose(found[300], probabilities(classifier, x[300:301])[0], atol=1e-6)
    assert probabilities(classifier, x[:0]).size == 0


def test_dropout_and_batch_norm_are_at_rest():
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Dropout(0.9), nn.Linear(4, 3))
    classifier = Classifier(network, (2, 2), (), (), "float32")
    x = np.ones((1, 2, 2), np.float32)
    assert np.array_equal(probabilities(classifier, x), probabilities(classifier, x))
