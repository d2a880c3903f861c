"""``fedge leaf`` and ``fedge run --leaves`` as functions; processes: test_leaf_servers."""

import argparse
import io
import shlex
import threading

import pytest
from flower_runs import comparable
from leaf_servers import cloud
from small_runs import small_config

from fedge import simulate
from fedge.callbacks import Callback
from fedge.cli import main
from fedge.config.registers.option import ConfigError
from fedge.launch.leaf_servers.leaf import serve_leaf
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.reach import free_port
from fedge.records.folder import short
from fedge.records.manifest import read_manifest


@pytest.fixture
def certificates(tmp_path):
    make_certificates(tmp_path / "certs", CertificateRequest(leaves=1))
    return tmp_path / "certs"


def options(tmp_path, **changes):
    given = {
        "leaf": 0, "certs": tmp_path / "certs", "folder": tmp_path / "own", "workers": 1, "once": True,
        "wait": 30.0, "owns_process": False, "trust_code": False,
        "data": str(tmp_path / "small.npz"),
    }  # fmt: skip
    return argparse.Namespace(**{**given, **changes})


def test_one_leaf_server_serves_one_run_and_ends(tmp_path, certificates, capsys):
    address, codes = f"127.0.0.1:{free_port()}", []
    serving = threading.Thread(
        target=lambda: codes.append(serve_leaf(options(tmp_path, cloud=address))), daemon=True
    )
    serving.start()
    config = small_config(tmp_path, **{"hierarchy.num-servers": 1, "num-server-rounds": 1})
    outcome, shown = cloud(config, address, certificates)
    serving.join(20)
    assert (outcome.status, codes) == ("completed", [0])
    assert f"waiting for 1 leaf server at {address}" in shown
    assert read_manifest(outcome.folder)["federation"]["leaves"] == 1
    assert "the run is over" in capsys.readouterr().out
    assert (tmp_path / "own" / "leaf.log").is_file()


def test_a_leaf_server_ends_at_once_after_a_run_that_was_refused(tmp_path, certificates, capsys):
    """Here its machine lacks the data; it would wait for the cloud, which is gone."""
    address, codes = f"127.0.0.1:{free_port()}", []
    nowhere = options(tmp_path, cloud=address, data=str(tmp_path / "nowhere.npz"), wait=600.0)
    serving = threading.Thread(target=lambda: codes.append(serve_leaf(nowhere)), daemon=True)
    serving.start()
    config = small_config(tmp_path, **{"hierarchy.num-servers": 1, "num-server-rounds": 1})
    outcome, _ = cloud(config, address, certificates)
    serving.join(20)
    assert (outcome.status, codes) == ("failed", [4])
    assert f"no round of the run could be finished: {outcome.reason[:100]}" in capsys.readouterr().out


class Stop(Callback):
    """A callback that fails in the second round."""

    def end_round(self, round_):
        assert round_.global_round < 2, "stopped here"


@pytest.mark.extended
def test_the_end_of_a_failed_run_has_the_command_that_goes_on(tmp_path, certificates):
    """It is carried out as it stands, and the run ends."""
    address, config = f"127.0.0.1:{free_port()}", small_config(tmp_path, **{"hierarchy.num-servers": 1})
    serving = threading.Thread(
        target=lambda: serve_leaf(options(tmp_path, cloud=address, wait=5.0, trust_code=True)), daemon=True
    )
    serving.start()
    outcome, shown = cloud({**config, "callbacks": f"{__name__}:Stop"}, address, certificates)
    assert outcome.status == "failed"
    resume = f"fedge resume {short(outcome.folder)} --leaves {address} --certs {certificates}"
    assert f"once the cause is fixed, resume with: {resume}\n" in shown
    assert main(shlex.split(resume)[1:]) == 4  # the callback fails again, in the same round
    assert main(["resume", str(outcome.folder)]) == 4  # it remembers address and certificates
    assert len(read_manifest(outcome.folder)["resumed"]) == 2
    serving.join(30)
    assert not serving.is_alive()


@pytest.mark.extended
def test_a_round_that_becomes_the_last_has_the_bits_of_one_process(tmp_path, certificates):
    """A callback ends the run between evaluations: leaf servers evaluate and fine-tune after the round."""
    address = f"127.0.0.1:{free_port()}"
    config = small_config(
        tmp_path, hierarchy__num_servers=1, num_server_rounds=3, evaluate__every=9, gate__enabled=False,
        personal__leaf_rounds=1, callbacks="byte-budget", callbacks_args='{"byte-budget": {"most": 10}}',
    )  # fmt: skip
    serving = threading.Thread(
        target=lambda: serve_leaf(options(tmp_path, cloud=address, wait=5.0)), daemon=True
    )
    serving.start()
    apart, _ = cloud({**config, "run-name": "apart"}, address, certificates)
    serving.join(30)
    assert not serving.is_alive()
    assert apart.status == "completed", apart.reason
    together = simulate({**config, "run-name": "together"}, terminal=io.StringIO())
    assert len(together.rounds) == 1
    assert comparable(apart.folder)["models"] == comparable(together.folder)["models"]
    assert comparable(apart.folder)["clients"] == comparable(together.folder)["clients"]


def test_a_leaf_server_whose_cloud_stays_away_ends(tmp_path, certificates, capsys):
    address = f"127.0.0.1:{free_port()}"
    assert serve_leaf(options(tmp_path, cloud=address, wait=0.3)) == 4
    assert f"fedge: no contact to the cloud at {address} for more than 0.3 s" in capsys.readouterr().err


def test_a_leaf_server_in_vain_says_why_once(tmp_path, certificates, capsys):
    """It would wait for ever without a word."""
    address = f"127.0.0.1:{free_port()}"
    assert serve_leaf(options(tmp_path, cloud=address, wait=1.5)) == 4
    said = f"fedge: no contact to the cloud at {address} (Connection refused); trying again\n"
    assert capsys.readouterr().out.count(said) == 1


def test_an_address_of_another_machine_is_refused(tmp_path, certificates):
    config = small_config(tmp_path, **{"hierarchy.num-servers": 1})
    with pytest.raises(ConfigError, match="--leaves must be a free address of this machine"):
        cloud(config, "192.0.2.1:1", certificates)
