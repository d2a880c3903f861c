"""The table of faults of deployments: its rows, its place in a page, and a link that can be cut."""

import socket
import threading

import pytest

from tools.faults import AWAY_S, FAULTS, HEAD, Came, Cut, main, put_into, row


def test_a_row_says_what_was_lost_and_whose_bits_came():
    without = Came(10.0, "completed", "a", 0)
    fault = FAULTS["leaf"]
    said = f"| leaf servers | leaf server killed, back after {AWAY_S} s |"
    assert row(fault, Came(15.2, "completed", "a", 0), without) == f"{said} 5 | completed | the same |"
    gone = Came(71.6, "partial", "b", 3)
    assert row(fault, gone, without) == f"{said} 62 | partial, 3 clients failed | without those |"
    wrong = Came(9.0, "completed", "b", 0)
    assert row(fault, wrong, without) == f"{said} 0 | completed | OTHERS |"


def test_a_table_is_put_between_its_marks_and_nowhere_else():
    page = "a\n<!-- by make faults -->\nold\n<!-- end -->\nb\n"
    assert put_into(page, "new\n") == page.replace("old", "new")
    assert put_into(put_into(page, "new\n"), "newer\n") == page.replace("old", "newer")
    with pytest.raises(ValueError, match="must have the marks"):
        put_into("a\n<!-- end -->\n", "new\n")
    assert len({line.count("|") for line in HEAD}) == 1


def test_a_link_passes_on_until_it_is_cut_and_again_when_it_is_mended():
    with socket.create_server(("127.0.0.1", 0)) as server:
        cut = Cut(server.getsockname()[1])

        def echo():
            for _ in range(2):
                other, _ = server.accept()
                with other:
                    while content := other.recv(100):
                        other.sendall(content)

        thread = threading.Thread(target=echo)
        thread.start()
        for word in (b"one", b"two"):
            with socket.create_connection(("127.0.0.1", cut.port), timeout=20) as caller:
                caller.sendall(word)
                assert caller.recv(100) == word
                cut.cut()
                assert caller.recv(100) == b""
            with socket.create_connection(("127.0.0.1", cut.port), timeout=20) as refused:
                assert refused.recv(100) == b""
            cut.fix()
        cut.close()
        thread.join(20)
        assert not thread.is_alive()


def test_an_unknown_fault_is_refused_before_anything_starts(capsys):
    with pytest.raises(SystemExit):
        main(["lightning"])
    assert "names must be of the list (--list), but is 'lightning'" in capsys.readouterr().err
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.split() == list(FAULTS)
