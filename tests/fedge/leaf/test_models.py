"""The models of one leaf through rounds written down here; what was one object remains one."""

import json

import numpy as np
import pytest

from fedge.exchange.round_context import LEAF, OWN_LINE, PERSONAL, TRIAL
from fedge.leaf.models import SLOTS, LeafModels


def state(value):
    return {"w": np.array([float(value)])}


def held(models):
    """Place → number, of the places that hold a model."""
    found = {slot: getattr(models, slot) for slot in SLOTS if not slot.startswith("fold-")}
    found |= {f"fold-{number}": model for number, model in enumerate(models.folds)}
    return {slot: model["w"][0] for slot, model in found.items() if model is not None}


@pytest.fixture
def models():
    return LeafModels(state(0))


def test_a_leaf_begins_with_one_model(models):
    assert held(models) == {"model": 0, "served": 0}
    assert models.served is models.model
    assert [models.training(line) is models.model for line in (LEAF, PERSONAL)] == [True, True]
    assert [models.training(line) for line in (OWN_LINE, TRIAL)] == [None, None]


def test_what_is_served_changes_at_gates_only(models):
    models.trained(LEAF, state(1))
    assert held(models) == {"model": 1, "served": 0}
    models.continue_with(models.model)
    assert held(models) == {"model": 1, "served": 1}


def test_two_rounds_with_offers_taken_tentatively(models):
    """Offer 5 beside own line 0; trained, they are 6 and 1; 1 is served, and offer 7 is the next."""
    models.take_tentatively(state(5))
    assert held(models) == {"model": 5, "served": 0, "own_line": 0}
    models.trained(LEAF, state(6))
    models.trained(OWN_LINE, state(1))
    assert held(models) == {"model": 6, "served": 0, "own_line": 1}
    models.continue_with(models.own_line)
    assert held(models) == {"model": 1, "served": 1}
    models.take_tentatively(state(7))
    assert held(models) == {"model": 7, "served": 1, "own_line": 1}
    assert models.own_line is models.served


def test_a_trial_lasts_from_one_cloud_step_to_the_next(models):
    models.apply_cloud_step(cluster=state(3), trial=state(4))
    models.trained(TRIAL, state(5))
    assert held(models) == {"model": 0, "served": 0, "cluster": 3, "trial": 5}
    models.apply_cloud_step(cluster=None, trial=None)
    assert held(models) == {"model": 0, "served": 0}


def test_nothing_goes_on_with_a_fine_tuned_model(models):
    models.serve_personal(state(8))
    assert held(models) == {"model": 0, "served": 8}
    assert models.training(PERSONAL) is models.served
    models.serve_unseen(state(9), is_own=False)
    assert held(models)["unseen"] == 9
    models.serve_unseen(None, is_own=False)
    assert models.unseen is None


@pytest.mark.parametrize("line", [OWN_LINE, TRIAL])
def test_what_does_not_train_cannot_have_trained(models, line):
    with pytest.raises(AssertionError):
        models.trained(line, state(1))


def test_the_personal_model_is_not_trained_in_place(models):
    with pytest.raises(AssertionError):
        models.trained(PERSONAL, state(1))


def full():
    """Four distinct models in six places."""
    models = LeafModels(state(1))
    models.take_tentatively(state(2))
    models.apply_cloud_step(cluster=models.model, trial=state(3))
    models.serve_unseen(state(4), is_own=False)
    return models


def test_each_model_is_kept_once():
    models, asked = full(), []

    def keep(model):
        asked.append(model["w"][0])
        return {"w": model["w"] + 10}

    models.keep(keep)
    assert sorted(asked) == [1, 2, 3, 4]
    assert held(models) == {
        "model": 12, "served": 11, "own_line": 11, "trial": 13, "cluster": 12, "unseen": 14,
    }  # fmt: skip
    assert models.own_line is models.served
    assert models.cluster is models.model


def test_models_go_on_from_a_checkpoint():
    """Every model is written once; one object before is one object after."""
    before, after = full(), LeafModels(state(99))
    repeated = json.loads(json.dumps(before.repeated()))
    assert repeated == {"own_line": "served", "cluster": "model"}
    assert sorted(before.states()) == ["model", "served", "trial", "unseen"]
    after.restore(before.states(), repeated)
    assert held(after) == held(before)
    assert after.own_line is after.served
    assert after.cluster is after.model


def test_a_checkpoint_of_few_models_leaves_no_other_behind():
    after = full()
    after.restore(LeafModels(state(7)).states(), LeafModels(state(7)).repeated())
    assert held(after) == {"model": 7, "served": 7}


def test_folds_last_from_one_cloud_step_to_the_next_and_survive(models):
    models.apply_cloud_step(None, None, [state(5), state(6), state(7)])
    models.fold_trained(1, state(16))
    assert held(models) == {"model": 0, "served": 0, "fold-0": 5, "fold-1": 16, "fold-2": 7}
    again = LeafModels(state(1))
    again.restore(models.states(), models.repeated())
    assert held(again) == held(models)
    models.apply_cloud_step(None, None, [state(8)])
    assert held(models) == {"model": 0, "served": 0, "fold-0": 8}


@pytest.mark.parametrize("slot", ["model", "served"])
def test_a_checkpoint_without_a_model_that_must_be_there_is_refused(slot):
    states = {name: {"w": np.ones(1)} for name in ("model", "served") if name != slot}
    with pytest.raises(ValueError, match=f"the models {slot} of a server must be there"):
        LeafModels({"w": np.zeros(1)}).restore(states, {})
