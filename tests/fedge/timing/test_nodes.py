from fedge.process.resources.memory import ProcessMemory
from fedge.timing.nodes import NodeBook
from fedge.timing.timeline import ExchangeTimes

SERVER, THERE = 5 << 22 | 7, 6 << 22


def held(**mib):
    """An exchange of clients whose nodes are at 600 + client on the machine THERE."""
    processes = {
        int(name.removeprefix("client_")): [
            ProcessMemory("worker", 900, of_client, number=THERE | 600 + int(name.removeprefix("client_")))
        ]
        for name, of_client in mib.items()
    }
    return ExchangeTimes(held=processes)


def test_the_last_reply_of_a_round_counts_and_clients_come_in_order():
    found = NodeBook(SERVER).round([held(client_4=1.0, client_2=2.0), held(client_4=3.0)])
    assert [(one.rss_mib, one.known_as) for one in found] == [(2.0, THERE | 602), (3.0, THERE | 604)]


def test_a_machine_is_called_after_its_first_client_and_keeps_its_name():
    book = NodeBook(SERVER)
    assert {one.machine for one in book.round([held(client_4=1.0)])} == {"client 4"}
    assert [one.machine for one in book.round([held(client_2=1.0, client_4=1.0)])] == ["client 4"] * 2
    assert book.names == {6: "client 4"}


def test_on_the_servers_machine_processes_are_known_by_their_ids():
    """A ClientApp by that of what starts it."""
    worker = ProcessMemory("worker", 900, 1.0, number=5 << 22 | 600)
    (found,) = NodeBook(SERVER).round([ExchangeTimes(held={1: [worker]})])
    assert (found.machine, found.pid, found.known_as) == ("", 900, 600)


def test_who_is_silent_has_no_rows():
    assert NodeBook(SERVER).round([ExchangeTimes(), held()]) == []
