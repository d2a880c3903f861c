"""A server's way up, by hand: what it counts its updates from, its memory, and both after a stop."""

import json

import numpy as np

from fedge.compression.rounding import Int8
from fedge.compression.sending import Sending
from fedge.compression.sparse import TopK
from fedge.compression.uplink import Uplink
from fedge.seeding import Purpose


def model(*w):
    return {"w": np.array(w, np.float32)}


def sending(compressor, path=(0,), given=(0.0, 0.0)):
    return Sending(Uplink(compressor, Purpose.SERVER_UPLINK, ["w"]), 3, path, model(*given))


def test_updates_count_from_the_model_that_was_given():
    """(3, 1) sends 3, 1 waits; given (5, 5) and at (5, 5.5) it sends the 1.5 that wait and are new."""
    up = sending(TopK(share=0.5))
    assert up.send(model(3.0, 1.0))["w"].tolist() == [3.0, 0.0]
    up.set_base(model(5.0, 5.0))
    assert up.send(model(5.0, 5.5))["w"].tolist() == [5.0, 6.5]
    assert up.send(model(6.0, 5.0))["w"].tolist() == [6.0, 5.0]  # the cloud gave none since


def test_it_goes_on_where_it_was():
    def begun():
        up = sending(TopK(share=0.5))
        up.send(model(3.0, 1.0))
        up.set_base(model(5.0, 5.0))
        return up

    before, after = begun(), sending(TopK(share=0.5))
    after.restore(before.states(), json.loads(json.dumps(before.facts())))
    for up in (before, after):
        assert up.send(model(5.0, 5.5))["w"].tolist() == [5.0, 6.5]


def test_each_server_rounds_anew_each_time():
    given, at = [0.0] * 12, np.linspace(0.05, 1, 12)
    up, other = sending(Int8(levels=2), (0,), given), sending(Int8(levels=2), (1,), given)
    sent = [up.send(model(*at)), up.send(model(*at)), other.send(model(*at))]
    assert len({tuple(each["w"]) for each in sent}) == 3


def test_bytes_of_a_model_on_its_way():
    assert sending(TopK(share=0.5)).sent_bytes == 5  # 32 bits and a place of one
