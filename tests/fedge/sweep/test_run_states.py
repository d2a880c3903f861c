"""How runs of a sweep stand: here, how many clients they have where the file does not say it."""

import pytest

from fedge.config.registers.option import ConfigError
from fedge.sweep.plan import read_sweep
from fedge.sweep.run_states import standings
from hhar import save_windows, synthetic_windows

HEAD = "[sweep]\nseeds = [1]\n"


@pytest.fixture
def stand(tmp_path, monkeypatch):
    """Function that writes a sweep file on windows of five users, and tells how its runs stand."""
    monkeypatch.chdir(tmp_path)
    save_windows(tmp_path / "five.npz", synthetic_windows(5, windows_per_bout=1, rate_hz=12.5))

    def stand(text, head=HEAD):
        (tmp_path / "s.toml").write_text(f'{head}\n[base]\ndata.path = "five.npz"\n{text}')
        return standings(read_sweep(tmp_path / "s.toml"))

    return stand


@pytest.mark.parametrize(
    ("text", "head", "clients"),
    [
        pytest.param("", HEAD, 5, id="one per user"),
        pytest.param("", f"{HEAD}supernodes = 4", 4, id="the file says so"),
        pytest.param("clients = 3", HEAD, 3, id="an option says so"),
        pytest.param("partition.kind = 'iid'", HEAD, 9, id="users are not dealt"),
        pytest.param("[[v]]\nname = 'a'\nsupernodes = 4", HEAD, 4, id="an entry says so"),
    ],
)
def test_a_run_has_a_client_per_user_unless_the_file_says_otherwise(stand, text, head, clients):
    (standing,) = stand(text, head)
    assert standing.run.supernodes == clients
    assert standing.note == {
        3: "5 users for 3 clients: some clients hold several users; for one each, omit supernodes",
        4: "5 users for 4 clients: some clients hold several users; for one each, omit supernodes",
    }.get(clients, "")


@pytest.mark.slow
def test_data_with_arguments_are_loaded_once_for_each(stand, tmp_path):
    """The rows of two writers are not those of three."""
    (tmp_path / "rows_of_a_test.py").write_text(
        "from hhar import synthetic_windows\n\n\ndef rows(people):\n"
        "    return synthetic_windows(people, windows_per_bout=1, rate_hz=12.5)\n"
    )
    entries = "".join(
        f"[[v]]\nname = 'of-{people}'\ndata.path = 'rows_of_a_test:rows'\ndata.path-args.people = {people}\n"
        for people in (4, 6)
    )
    assert [standing.run.supernodes for standing in stand(entries)] == [4, 6]


def test_data_that_are_not_there_are_refused_at_their_run(stand):
    with pytest.raises(ConfigError, match=r"^v-seed1: data\.path: .*none\.npz"):
        stand("[[a]]\nname = 'v'\ndata.path = 'none.npz'")
