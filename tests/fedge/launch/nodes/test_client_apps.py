"""A process per message; one that holds a GPU stays for the next, until it fails or dies."""

import os
import select
import signal
import sys
import time

import pytest

from fedge.launch.nodes import client_apps
from fedge.launch.nodes.client_apps import ClientApps, reap
from fedge.launch.nodes.node_output import A_CLIENT_APP, NodeOutput
from fedge.process import persistent_process

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nodes fork on Linux alone")


@pytest.fixture
def told(tmp_path):
    """A file in which every message leaves a line."""
    return tmp_path / "told"


@pytest.fixture
def apps_of(told, monkeypatch):
    """ClientApps of a program that leaves a line, and whose processes hold a GPU if asked."""
    made = []

    def make(holds_gpu, then=lambda words: None):
        monkeypatch.setattr(persistent_process, "holds_gpu", lambda: holds_gpu)

        def program():
            default = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
            with told.open("a") as file:
                file.write(f"{os.getpid()} {default} {sys.argv}\n")
            then(sys.argv[1:])
            sys.exit(0)

        made.append(ClientApps(program, NodeOutput()))
        return made[-1]

    yield make
    for apps in made:
        pids = [child.pid for child in apps._reusable.values()]
        apps.close()
        for pid in pids:
            _ended(pid)
    client_apps._children.clear()


def lines(told, count):
    """The lines of so many messages."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = told.read_text().splitlines() if told.exists() else []
        if len(found) >= count:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{count} messages, but {found}")


def settle(apps, seconds=20):
    """Let a child say that it stays, or end."""
    ready = select.select(apps.descriptors, [], [], seconds)[0]
    assert ready
    apps.read_reports(ready)


def _ended(pid):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} goes on")


def test_without_a_gpu_a_message_is_a_process_of_its_own_with_its_words(apps_of, told):
    apps = apps_of(False)
    for number in range(2):
        apps.start(["--token", f"t{number}"])
        lines(told, number + 1)
        settle(apps)
        assert apps.descriptors == []
    (first, second) = lines(told, 2)
    assert first.split()[0] != second.split()[0]
    assert first.split(" ", 1)[1] == "True ['flwr-clientapp', '--token', 't0']"


def test_with_a_gpu_one_process_answers_all_with_signals_and_words_as_for_the_first(apps_of, told):
    apps = apps_of(True)
    for number in range(3):
        apps.start(["--token", f"a b{number}"])
        lines(told, number + 1)
        settle(apps)
    found = lines(told, 3)
    assert len({line.split()[0] for line in found}) == 1
    assert [line.split(" ", 1)[1] for line in found] == [
        f"True ['flwr-clientapp', '--token', 'a b{number}']" for number in range(3)
    ]


def test_a_process_that_died_waiting_is_replaced_at_the_next_message(apps_of, told):
    apps = apps_of(True)
    apps.start(["1"])
    first = int(lines(told, 1)[0].split()[0])
    settle(apps)
    os.kill(first, signal.SIGKILL)
    _ended(first)
    apps.start(["2"])
    assert int(lines(told, 2)[1].split()[0]) != first
    settle(apps)


def test_a_process_that_dies_at_work_is_replaced_and_a_failed_one_does_not_stay(apps_of, told):
    def then(words):
        if words == ["dies"]:
            os.kill(os.getpid(), signal.SIGKILL)
        if words == ["fails"]:
            persistent_process.note_failure()

    apps = apps_of(True, then)
    pids = []
    for number, word in enumerate(("well", "dies", "fails", "well"), start=1):
        apps.start([word])
        pids.append(lines(told, number)[-1].split()[0])
        settle(apps)
    assert pids[0] == pids[1] != pids[2] != pids[3]


def test_a_message_does_not_wait_for_a_process_at_work_and_one_alone_is_kept(apps_of, told):
    def then(words):
        if words == ["long"]:
            time.sleep(0.5)

    apps = apps_of(True, then)
    apps.start(["long"])
    lines(told, 1)
    apps.start(["short"])
    first, second = (line.split()[0] for line in lines(told, 2))
    assert first != second
    settle(apps)
    settle(apps)  # the long one is told to end
    assert [child.pid for child in apps._reusable.values()] == [int(second)]
    _ended(int(first))


@pytest.mark.parametrize(
    ("code", "expected"), [(None, 0), (0, 0), (7, 7), ("words", 1)], ids=["none", "0", "7", "words"]
)
def test_the_exit_code_is_the_programs(code, expected):
    def program():
        sys.exit(code)

    pid = os.fork()
    if pid == 0:
        os._exit(client_apps.be_client_app(program, [], *os.pipe()))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == expected
    reap()  # nobody is left: no error


def test_flowers_program_leaves_a_process_that_stays_alive_and_ends_any_other(monkeypatch):
    """Flower's own function would end it five seconds later; failures and strangers still end by it."""
    from flwr.supernode.runtime import run_clientapp as runtime

    ended, watched = [], []
    monkeypatch.setattr(runtime, "flwr_exit", lambda code, **named: ended.append(code) or sys.exit(code))
    monkeypatch.setattr(runtime, "start_parent_process_monitor", watched.append)
    assert client_apps._prevent_exit()
    monkeypatch.setattr(persistent_process, "handles_further_messages", lambda: True)
    with pytest.raises(SystemExit, match="0"):
        runtime.flwr_exit(code=0, event_type=None)
    assert ended == []
    with pytest.raises(SystemExit, match="1"):
        runtime.flwr_exit(1)
    monkeypatch.setattr(persistent_process, "handles_further_messages", lambda: False)
    with pytest.raises(SystemExit, match="0"):
        runtime.flwr_exit(0)
    assert ended == [1, 0]
    for parent in (7, 7, 8):
        runtime.start_parent_process_monitor(parent)
    assert watched == [7, 8]
    monkeypatch.delattr(runtime, "start_parent_process_monitor")
    assert not client_apps._prevent_exit()


def test_a_process_that_stays_has_its_limit_of_output_for_every_message():
    output = NodeOutput()
    pid = output.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    for pipe in output._pipes.values():
        pipe.room = 0
    output.reset_limit(pid + 1)
    assert {pipe.room for pipe in output._pipes.values()} == {0}
    output.reset_limit(pid)
    assert {pipe.room for pipe in output._pipes.values()} == {A_CLIENT_APP}
    for reading in output.descriptors:
        os.close(reading)
