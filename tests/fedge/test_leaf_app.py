"""Flower's entry of a leaf server: how it ends is its last line. With nodes: deployed/test_leaves.py."""

import pytest
from flwr.app import Context, RecordDict

from fedge import leaf_app
from fedge.client_app import app as client_app
from fedge.engine.inprocess import InProcessGrid
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.reach import free_port


@pytest.fixture
def context(tmp_path):
    told = {
        "leaf": 0, "cloud": f"127.0.0.1:{free_port()}", "certs": str(tmp_path / "certs"),
        "folder": str(tmp_path), "once": True, "wait": 0.2,
    }  # fmt: skip
    return Context(1, 0, {}, RecordDict(), told)


def ended(context, capsys):
    """Carry the app out; return what it printed."""
    with InProcessGrid(client_app, 1, {}, 1) as grid:
        leaf_app.app(grid, context)
    return capsys.readouterr().out.splitlines()


def test_a_cloud_that_stays_away_ends_it(tmp_path, context, capsys):
    make_certificates(tmp_path / "certs", CertificateRequest(leaves=1))
    *_, why, last = ended(context, capsys)
    assert "for more than 0.2 s" in why
    assert last == "fedge: leaf server ended, exit code 4"
    assert (tmp_path / "leaf.log").is_file()


def test_certificates_that_are_not_there_are_one_line(context, capsys):
    *_, why, last = ended(context, capsys)
    assert "leaf-0.crt must exist for TLS" in why
    assert last == "fedge: leaf server ended, exit code 4"
