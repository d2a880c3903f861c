"""A cloud and leaf servers in threads, over real TLS on the loopback."""

import shutil
import threading
import time

import grpc
import numpy as np
import pytest
from links import Network, serving

from fedge.config.registers.option import ConfigError
from fedge.link import admission
from fedge.link.admission import HELLO, LEAF, PROCESS
from fedge.link.certificates import CertificateRequest, make_certificates, revoke
from fedge.link.dial import Link, Refused
from fedge.link.frames import LinkError, Packet, chunks_of
from fedge.link.gate import LeafGate, LeafGone, LeafRefused

WELCOME = Packet("welcome", {"seed": 7})


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls") / "certs"
    make_certificates(folder, CertificateRequest(leaves=3))
    return folder


class Doubling:
    """Answers a question with twice its model, after a note; a question "over" is the last."""

    def __init__(self, wait=None):
        self.asked, self.seed, self.wait = [], None, wait

    def hello(self):
        return Packet(HELLO, {"clients": [1, 2]})

    def welcome(self, packet):
        self.seed = packet.facts["seed"]

    def answer(self, packet, note):
        self.asked.append(packet.kind)
        note({"done": 1})
        if self.wait:
            self.wait()
        return Packet("answer", {"of": packet.kind}, {n: {"w": 2 * s["w"]} for n, s in packet.states.items()})


@pytest.fixture
def attached(certificates):
    """A function that lets leaf servers of a gate live in threads; all have ended at the end."""
    started = []

    def attach(gate, leaf, answering, folder=certificates, lost_s=5.0, **more):
        link = Link(gate.address, folder, leaf)
        failures = []

        def serve():
            try:
                link.serve(answering, lost_s, **more)
            except Refused as error:
                failures.append(error)

        thread = threading.Thread(target=serve)
        thread.start()
        started.append((link, thread))
        return link, thread, failures

    yield attach
    for link, thread in started:
        link.stop()
        thread.join(10)
        assert not thread.is_alive()


def test_every_leaf_is_asked_and_answers(certificates, attached):
    with LeafGate("127.0.0.1:0", certificates, 2, WELCOME) as gate:
        answering = [Doubling(), Doubling()]
        notes = []
        for leaf in (1, 0):
            attached(gate, leaf, answering[leaf])
        big = {"w": np.arange(10**6, dtype=np.float64)}
        for leaf in (0, 1):
            found = gate.ask(leaf, Packet("train", {}, {"model": big}), 5.0, notes.append)
            assert found.facts["of"] == "train"
            np.testing.assert_array_equal(found.states["model"]["w"], 2 * big["w"])
        assert [note.facts["done"] for note in notes] == [1, 1]
        assert {leaf: hello.facts["clients"] for leaf, hello in gate.hellos().items()} == {
            0: [1, 2],
            1: [1, 2],
        }
        assert [each.seed for each in answering] == [7, 7]


def test_states_are_kept_as_they_come_on_both_sides(certificates, attached):
    """Twice the model with one more, and one less than that."""
    with LeafGate("127.0.0.1:0", certificates, 1, WELCOME) as gate:
        attached(gate, 0, Doubling(), keep=lambda state: {"w": state["w"] + 1})
        sent = Packet("train", {}, {"model": {"w": np.arange(3.0)}})
        found = gate.ask(0, sent, 5.0, keep=lambda state: {"w": state["w"] - 1})
        assert found.states["model"]["w"].tolist() == [1.0, 3.0, 5.0]


def test_a_leaf_that_comes_late_is_waited_for(certificates, attached):
    with LeafGate("127.0.0.1:0", certificates, 1, WELCOME) as gate:
        late = threading.Timer(0.3, attached, (gate, 0, Doubling()))
        late.start()
        assert gate.ask(0, Packet("train"), 5.0).kind == "answer"
        late.join()


def test_a_leaf_that_is_away_or_silent_is_given_up(certificates, attached):
    with LeafGate("127.0.0.1:0", certificates, 2, WELCOME) as gate:
        with pytest.raises(LeafGone, match="leaf server 1 has been away for 0 s; the run continues"):
            gate.ask(1, Packet("train"), 0.2)
        go_on = threading.Event()
        attached(gate, 0, Doubling(go_on.wait))
        with pytest.raises(LeafGone, match=r"leaf server 0 did not answer within 0\.5 s"):
            gate.ask(0, Packet("train"), 0.5)
        go_on.set()
        assert gate.ask(0, Packet("next"), 5.0).facts["of"] == "next"


def test_a_leaf_that_stays_away_is_waited_for_once(certificates, attached, monkeypatch):
    """A second question costs a moment, whatever it may wait; a third finds the leaf attached again."""
    monkeypatch.setattr("fedge.link.gate._ABSENT_S", 0.1)
    with LeafGate("127.0.0.1:0", certificates, 1, WELCOME) as gate:
        with pytest.raises(LeafGone, match="has been away for"):
            gate.ask(0, Packet("train"), 0.3)
        with pytest.raises(LeafGone, match="the run continues without it"):
            gate.ask(0, Packet("train"), 3600.0)
        attached(gate, 0, Doubling())
        until = time.monotonic() + 30.0
        while not gate.hellos() and time.monotonic() < until:
            time.sleep(0.01)
        assert gate.ask(0, Packet("train"), 5.0).kind == "answer"
        assert gate._absent_since == {}


def test_a_question_is_put_again_where_the_stream_broke_and_is_answered_once(certificates, attached):
    """The leaf is at work as its stream is cut; it dials again, and gives the answer that it has."""
    with LeafGate("127.0.0.1:0", certificates, 1, WELCOME) as gate:
        answering = Doubling(lambda: gate._streams[0].cut())
        attached(gate, 0, answering)
        assert gate.ask(0, Packet("train"), 5.0).kind == "answer"
        assert answering.asked == ["train"]


@pytest.mark.extended
def test_a_connection_that_carries_nothing_any_more_is_noticed_within_a_minute(certificates):
    """Neither side is told that the other is gone; gRPC's own limit is 80 s."""
    with LeafGate("127.0.0.1:0", certificates, 1, WELCOME) as gate:
        network = Network(gate.address)
        link, big = Link(network.address, certificates, 0), {"model": {"w": np.zeros(10**5)}}
        with serving([link], [Doubling()], timeout_s=200.0):
            for _ in range(3):
                gate.ask(0, Packet("train", {}, big), 20.0)
            network.lose()
            assert gate.ask(0, Packet("next", {}, big), 58.0).facts["of"] == "next"
        network.close()


def test_a_leaf_finds_a_cloud_that_was_started_again(certificates, attached):
    answering = Doubling()
    with LeafGate("127.0.0.1:0", certificates, 1, WELCOME) as gate:
        attached(gate, 0, answering, lost_s=20.0)
        gate.ask(0, Packet("train"), 5.0)
        address = gate.address
    with LeafGate(address, certificates, 1, Packet("welcome", {"seed": 8})) as gate:
        assert gate.ask(0, Packet("train"), 10.0).kind == "answer"
    assert (answering.asked, answering.seed) == (["train", "train"], 8)


def test_a_leaf_goes_when_nothing_more_will_come_and_where_the_cloud_stays_away(certificates, attached):
    with LeafGate("127.0.0.1:0", certificates, 2, WELCOME) as gate:
        _, thread, failures = attached(gate, 0, Doubling())
        gate.ask(0, Packet("over"), 5.0)
        thread.join(5)
        assert not thread.is_alive()
        assert failures == []
        _, left, failures = attached(gate, 1, Doubling(), lost_s=0.5)
        gate.ask(1, Packet("train"), 5.0)
    left.join(10)
    assert "for more than 0.5 s" in str(failures[0])


@pytest.mark.parametrize("who", ["a leaf of another run", "another authority", "nobody"])
def test_strangers_do_not_get_in(certificates, attached, tmp_path, who):
    with LeafGate("127.0.0.1:0", certificates, 2, WELCOME) as gate:
        if who == "nobody":
            authority = (certificates / "ca.crt").read_bytes()
            options = [("grpc.ssl_target_name_override", "cloud")]
            with grpc.secure_channel(
                gate.address, grpc.ssl_channel_credentials(authority), options
            ) as channel:
                call = channel.stream_stream("/fedge.Leaves/Attach")(iter([b"H{}"]), timeout=60)
                with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
                    next(call)
        elif who == "another authority":
            make_certificates(tmp_path, CertificateRequest(leaves=1))
            _, thread, failures = attached(gate, 0, Doubling(), tmp_path, lost_s=0.3)
            thread.join(10)
            assert "no contact to the cloud" in str(failures[0])
        else:
            _, thread, failures = attached(gate, 2, Doubling())
            thread.join(10)
            assert "refuses: no leaf server of this run: leaf-2" in str(failures[0])
        assert gate.hellos() == {}


def test_of_two_processes_with_one_certificate_the_newer_stays(certificates, attached):
    with LeafGate("127.0.0.1:0", certificates, 1, WELCOME) as gate:
        old, new = Doubling(), Doubling()
        _, thread, failures = attached(gate, 0, old)
        gate.ask(0, Packet("train"), 5.0)
        attached(gate, 0, new)
        thread.join(10)
        assert "another process has taken the place of leaf server 0" in str(failures[0])
        gate.ask(0, Packet("train"), 5.0)
        assert (old.asked, new.asked) == (["train"], ["train"])


def test_hellos_for_ever_take_no_memory(certificates, monkeypatch):
    monkeypatch.setattr("fedge.link.gate._MOST_OUTDATED", 3)
    with LeafGate("127.0.0.1:0", certificates, 1, WELCOME) as gate:
        for number in range(8):
            hello = Packet(HELLO, {LEAF: 0, PROCESS: f"p{number}"})
            call, channel, go_on = knock(gate, certificates, chunks=chunks_of(hello))
            next(call)
            go_on.set()
            channel.close()
        assert [list(processes) for processes in gate._outdated.values()] == [["p4", "p5", "p6"]]


def test_an_address_or_certificates_that_cannot_be_used_are_refused(certificates, tmp_path):
    with (
        LeafGate("127.0.0.1:0", certificates, 1, WELCOME) as gate,
        pytest.raises(LinkError, match="listened"),
    ):
        LeafGate(gate.address, certificates, 1, WELCOME)
    with pytest.raises(ConfigError, match=r"cloud\.crt must exist for TLS"):
        LeafGate("127.0.0.1:0", tmp_path, 1, WELCOME)


def test_nothing_is_left_when_a_gate_is_closed(certificates, attached):
    before = threading.active_count()
    with LeafGate("127.0.0.1:0", certificates, 2, WELCOME) as gate:
        links = [attached(gate, leaf, Doubling()) for leaf in range(2)]
        for leaf in range(2):
            gate.ask(leaf, Packet("train"), 5.0)
        for link, thread, _ in links:
            link.stop()
            thread.join(5)
    deadline = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before + 1  # gRPC keeps a thread of its own that polls


# --- who has a certificate, and misuses it ------------------------------------------------------------------


def knock(gate, folder, name="leaf-0", chunks=()):
    """Attach by hand; gives the call, and what keeps it open."""
    authority, key, shown = (
        (folder / file).read_bytes() for file in ("ca.crt", f"{name}.key", f"{name}.crt")
    )
    options = [("grpc.ssl_target_name_override", "cloud"), ("grpc.use_local_subchannel_pool", 1)]
    channel = grpc.secure_channel(gate.address, grpc.ssl_channel_credentials(authority, key, shown), options)
    go_on = threading.Event()

    def said():
        yield from chunks
        go_on.wait(60)

    return channel.stream_stream("/fedge.Leaves/Attach")(said()), channel, go_on


def test_silent_streams_of_one_certificate_keep_no_leaf_out(certificates, attached):
    """Thirty, before and after the leaf whose certificate it is has come; neither it nor another notices."""
    with LeafGate("127.0.0.1:0", certificates, 2, WELCOME) as gate:
        knocking = [knock(gate, certificates) for _ in range(15)]
        began = time.monotonic()
        for leaf in (1, 0):
            attached(gate, leaf, Doubling())
            assert gate.ask(leaf, Packet("train"), 60.0).kind == "answer"
        knocking += [knock(gate, certificates) for _ in range(15)]
        for leaf in (1, 0):
            assert gate.ask(leaf, Packet("train"), 60.0).kind == "answer"
        assert time.monotonic() - began < admission._HELLO_S
        for call, channel, go_on in knocking:
            go_on.set()
            call.cancel()
            channel.close()


def test_silent_streams_are_counted_by_certificate(certificates):
    """One that is slow to say its hello is not let go for another's thirty."""
    with LeafGate("127.0.0.1:0", certificates, 2, WELCOME) as gate:
        begun, said = threading.Event(), threading.Event()

        def slowly():
            begun.set()
            said.wait(60)
            yield from chunks_of(Packet(HELLO))

        knocking = [knock(gate, certificates, "leaf-1", slowly())]
        assert begun.wait(60)
        wait_until(lambda: gate._entrance._pending._streams["leaf-1"])
        knocking += [knock(gate, certificates) for _ in range(30)]
        with pytest.raises(grpc.RpcError, match="CANCELLED"):
            next(knocking[1][0])
        said.set()
        assert next(knocking[0][0])
        for call, channel, go_on in knocking:
            go_on.set()
            call.cancel()
            channel.close()


def test_who_says_no_hello_is_let_go(certificates, monkeypatch):
    monkeypatch.setattr(admission, "_HELLO_S", 0.3)
    with LeafGate("127.0.0.1:0", certificates, 1, WELCOME) as gate:
        call, channel, go_on = knock(gate, certificates)
        with pytest.raises(grpc.RpcError, match="CANCELLED"):
            next(call)
        go_on.set()
        channel.close()


@pytest.mark.parametrize(
    "chunks",
    [(b"D123",), (b"H{}", b"H"), (b"H" + b" " * 2**20,) * 20, (b'H{"kind": "note"', b"H")],
    ids=["no head", "none", "endless", "cut"],
)
def test_what_is_no_hello_is_refused(certificates, chunks):
    with LeafGate("127.0.0.1:0", certificates, 1, WELCOME) as gate:
        call, channel, go_on = knock(gate, certificates, chunks=chunks)
        with pytest.raises(grpc.RpcError, match="the first packet must be a hello"):
            next(call)
        go_on.set()
        channel.close()
        assert gate.hellos() == {}


def test_a_revoked_certificate_does_not_get_in_while_the_cloud_runs(tmp_path, attached):
    make_certificates(tmp_path, CertificateRequest(leaves=2))
    with LeafGate("127.0.0.1:0", tmp_path, 2, WELCOME) as gate:
        shutil.copytree(tmp_path, tmp_path / "old")
        attached(gate, 0, Doubling(), tmp_path)
        gate.ask(0, Packet("train"), 60.0)
        revoke(tmp_path, ["leaf-1"])
        _, thread, failures = attached(gate, 1, Doubling(), tmp_path / "old")
        thread.join(20)
        assert "the certificate of leaf-1 was revoked" in str(failures[0])
        make_certificates(tmp_path, CertificateRequest(leaves=2))
        attached(gate, 1, Doubling(), tmp_path)
        assert gate.ask(1, Packet("train"), 60.0).kind == "answer"


def test_certificates_are_exchanged_while_cloud_and_leaf_live(tmp_path, attached):
    """Another authority altogether: a leaf that stays gets in by its new files, an old one does not."""
    folder = tmp_path / "now"
    make_certificates(folder, CertificateRequest(leaves=2))
    shutil.copytree(folder, tmp_path / "old")
    with LeafGate("127.0.0.1:0", folder, 2, WELCOME) as gate:
        answering = Doubling()
        attached(gate, 0, answering, folder, lost_s=60.0)
        gate.ask(0, Packet("train"), 60.0)
        make_certificates(tmp_path / "new", CertificateRequest(leaves=2))
        for file in (tmp_path / "new").iterdir():
            shutil.copy(file, folder / file.name)
        gate._streams[0].cut()
        assert gate.ask(0, Packet("next"), 60.0).kind == "answer"
        assert answering.asked == ["train", "next"]
        _, thread, failures = attached(gate, 1, Doubling(), tmp_path / "old", lost_s=0.5)
        thread.join(20)
        assert "no contact to the cloud" in str(failures[0])


class Chatting(Doubling):
    """Answers only after so many notes, or with something else."""

    def __init__(self, notes, answer=None):
        super().__init__()
        self.notes, self.found = notes, answer

    def answer(self, packet, note):
        for number in range(self.notes):
            note({"done": number})
            time.sleep(0.05)
        return self.found or super().answer(packet, note)


@pytest.mark.extended
def test_notes_for_ever_without_getting_on_end_the_wait(certificates, attached):
    """The same leaf may take as long as it gets on; where nobody asked for notes they break no silence."""
    with LeafGate("127.0.0.1:0", certificates, 2, WELCOME) as gate:
        for leaf in (0, 1):
            attached(gate, leaf, Chatting(40))
        assert gate.ask(0, Packet("train"), 5.0, lambda _: True, limit_s=1.0).kind == "answer"
        with pytest.raises(LeafGone, match=r"leaf server 0 did not answer within 0\.5 s"):
            gate.ask(0, Packet("train"), 5.0, lambda _: False, limit_s=0.5)
        gate.ask(1, Packet("train"), 5.0)
        with pytest.raises(LeafGone, match=r"leaf server 1 did not answer within 0\.5 s"):
            gate.ask(1, Packet("train"), 0.5)


def test_a_note_that_cannot_be_ends_the_question(certificates, attached):
    def refuse(_):
        raise ValueError("back: of client 7")

    with LeafGate("127.0.0.1:0", certificates, 1, WELCOME) as gate:
        attached(gate, 0, Chatting(1))
        with pytest.raises(LeafRefused, match="leaf server 0: back: of client 7"):
            gate.ask(0, Packet("train"), 5.0, refuse)
        assert gate.ask(0, Packet("train"), 5.0).kind == "answer"


@pytest.mark.parametrize(
    "answer",
    [
        Packet("answer", {}, {"model": {"w": np.zeros(10**6)}}),
        Packet("answer", {"words": "x" * 10**6}),
        Packet("answer", {str(n): "\x1b[2J" for n in range(10**4)}),
    ],
    ids=["arrays", "head", "facts"],
)
def test_an_answer_that_is_too_long_is_not_read(certificates, attached, answer):
    with LeafGate("127.0.0.1:0", certificates, 1, WELCOME) as gate:
        attached(gate, 0, Chatting(0, answer))
        with pytest.raises(LeafRefused, match="bytes") as caught:
            gate.ask(0, Packet("train"), 5.0, most=(10**5, 10**5))
        assert str(caught.value).isprintable()


class Named(Doubling):
    """Says in its hello of which process it is."""

    def __init__(self, process):
        super().__init__()
        self.process = process

    def hello(self):
        return Packet(HELLO, {"subtree": self.process} if self.process else {})


@pytest.mark.parametrize(
    ("processes", "is_one"), [("aa", True), ("ab", False), (["", ""], False), ("a", False)], ids=str
)
def test_leaf_servers_are_one_process_by_their_hellos(tmp_path, processes, is_one):
    """Both, or the first alone, show the certificate of the server above them."""
    make_certificates(tmp_path / "certs", CertificateRequest(leaves=2, paths=("0",)))
    with LeafGate("127.0.0.1:0", tmp_path / "certs", 2, WELCOME, {"0": [0, 1]}) as gate:
        links = [Link(gate.address, tmp_path / "certs", leaf, "0") for leaf, _ in enumerate(processes)]
        with serving(links, map(Named, processes), 5.0):
            wait_until(lambda: len(gate.hellos()) == len(links))
            assert gate.one_process([0, 1], "subtree") is is_one
            assert gate.one_process([0], "subtree") is bool(processes[0])
            assert gate.processes([0, 1], "subtree") == ([[0, 1]] if is_one else [[0], [1]])


def test_leaf_servers_with_certificates_of_their_own_are_not_one_process(certificates):
    """Whatever they say: another's word counts for its own leaf alone."""
    with LeafGate("127.0.0.1:0", certificates, 2, WELCOME) as gate:
        links = [Link(gate.address, certificates, leaf) for leaf in (0, 1)]
        with serving(links, [Named("a"), Named("a")], 5.0):
            wait_until(lambda: len(gate.hellos()) == 2)
            assert not gate.one_process([0, 1], "subtree")
            assert gate.one_process([0], "subtree")
            assert gate.processes([1, 0], "subtree") == [[1], [0]]


def wait_until(holds):
    """Wait at most some seconds."""
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
