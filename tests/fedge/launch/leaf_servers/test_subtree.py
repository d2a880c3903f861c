"""``fedge leaf --at`` as a function; whole runs of subtrees: tests/runs/hierarchy/test_subtrees.py."""

import argparse
import threading

import pytest
from leaf_servers import cloud
from small_runs import small_config

from fedge.config.registers.option import ConfigError
from fedge.launch.leaf_servers.subtree import Subtree, serve_subtree
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.dial import Refused
from fedge.link.reach import free_port
from fedge.process.endings import exits


@pytest.fixture
def certificates(tmp_path):
    make_certificates(tmp_path / "certs", CertificateRequest(leaves=1, paths=("0", "1", "7")))
    return tmp_path / "certs"


def options(tmp_path, address, path, **changes):
    given = {
        "leaf": None, "at": path, "cloud": address, "certs": tmp_path / "certs", "workers": 1, "once": True,
        "folder": tmp_path / f"at-{path}", "wait": 30.0, "owns_process": False, "trust_code": False,
        "data": str(tmp_path / "small.npz"),
    }  # fmt: skip
    return argparse.Namespace(**{**given, **changes})


def test_a_region_is_one_process_serves_one_run_and_ends_and_another_path_is_refused(
    tmp_path, certificates, capsys
):
    address, codes = f"127.0.0.1:{free_port()}", {}

    def serve(path):
        codes[path] = serve_subtree(options(tmp_path, address, path))

    threads = [threading.Thread(target=serve, args=(path,), daemon=True) for path in ("0", "1", "7")]
    for thread in threads:
        thread.start()
    config = small_config(tmp_path, **{"hierarchy.tree": "2x2x*", "num-server-rounds": 1})
    outcome, _ = cloud(config, address, certificates)
    for thread in threads:
        thread.join(30)
    said = capsys.readouterr()
    assert (outcome.status, codes) == ("completed", {"0": 0, "1": 0, "7": exits.FAILED})
    assert "server 1 runs the leaf servers 2, 3" in said.out
    assert "no leaf server of this run: server-7" in said.err
    assert {f.name for f in (tmp_path / "at-1").iterdir()} == {".lock", "leaf.log", "leaf-2", "leaf-3"}


def test_a_cloud_that_stays_away_is_given_up_in_one_line(tmp_path, certificates, capsys):
    address = f"127.0.0.1:{free_port()}"
    assert serve_subtree(options(tmp_path, address, "0", wait=0.2)) == exits.FAILED
    error = capsys.readouterr().err
    assert "for more than 0.2 s" in error
    assert error.count("\n") == 1


def test_a_path_without_certificate_is_refused_before_anything(tmp_path, certificates):
    with pytest.raises(ConfigError, match=r"server-0\.1\.crt must exist"):
        serve_subtree(options(tmp_path, "127.0.0.1:1", "0.1"))
    assert not (tmp_path / "at-0.1").exists()


class _Ending:
    """A link that is refused, is told at once that it is over, or serves until it is stopped."""

    def __init__(self, why="", told=False):
        self.why, self.told, self.over = why, told, threading.Event()

    def serve(self, host, lost_s, most, keep):
        if self.why:
            raise Refused(self.why)
        assert self.told or self.over.wait(30)

    def stop(self):
        self.over.set()


class _Host:
    closed = 0
    most_bytes = None
    keep = staticmethod(dict)

    def close(self):
        self.closed += 1


def test_one_leaf_that_is_refused_ends_all_of_the_process():
    links, hosts = [_Ending(), _Ending("another process has taken the place")], [_Host(), _Host()]
    with pytest.raises(Refused, match="another process"):
        Subtree(links, hosts).serve(1.0)
    assert [host.closed for host in hosts] == [1, 1]
    assert all(link.over.is_set() for link in links)


def test_a_leaf_that_is_not_told_that_a_run_is_over_does_not_keep_the_others_from_the_next():
    links, hosts = [_Ending(), _Ending(told=True)], [_Host(), _Host()]
    subtree = Subtree(links, hosts)
    subtree.leave_s = 0.1
    subtree.serve(1.0)
    assert links[0].over.is_set()
