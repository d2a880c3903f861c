"""Real runs on Ray, looked at from outside: who can reach their processes."""

import pytest
from ray_runs import ENDLESS, ROOT, RayRun, listening

from fedge.engine.loopback import is_loopback

BARE = "[tool.flwr.federations.bare]\noptions.num-supernodes = 9\n"  # as who knows nothing of Ray writes it


@pytest.mark.parametrize(
    ("program", "federation"),
    [("flwr", "bare"), pytest.param("fedge", "local-simulation", marks=pytest.mark.extended)],
)
def test_every_socket_of_a_run_is_on_loopback(tmp_path, program, federation):
    """Of a federation that asks for nothing; of Fedge's own, the second of its kind, with make extended."""
    app = tmp_path / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + BARE)
    words = ["run", app, federation, "-c", f"{ENDLESS} runs-dir='{tmp_path / 'runs'}'"]
    words += ["--engine", "flower"] if program == "fedge" else []
    with RayRun(tmp_path, *words, program=program) as run:
        run.wait_for(" 2/100000")
        sockets = listening(run.processes())
        names = {name for name, _, _ in sockets}
        assert {"raylet", "gcs_server"} <= names, sockets
        assert len(sockets) > 5
        assert not [socket for socket in sockets if not is_loopback(socket[1])]
        # Ray keeps a process of its dashboard even so, for statistics of use: it must serve nobody
        assert listening(run.named("dashboard/dashboard.py")) == set()
