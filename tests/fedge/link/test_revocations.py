"""The list of certificates that count no more: read again when it changes, and the authority's alone."""

from datetime import datetime, timedelta

import pytest

from fedge.config.registers.option import ConfigError
from fedge.link import revocations
from fedge.link.certificate_checks import read_certificate
from fedge.link.certificates import CertificateRequest, make_certificates, revoke
from fedge.link.revocations import FILE, Revoked


@pytest.fixture
def folder(tmp_path):
    make_certificates(tmp_path / "one", CertificateRequest(leaves=2))
    return tmp_path / "one"


def test_without_a_list_nothing_is_on_it_and_one_that_comes_is_seen(folder):
    listed = Revoked(folder, read_certificate(folder / "ca.crt"))
    assert listed.serials() == frozenset()
    first, second = (read_certificate(folder / f"leaf-{leaf}.crt").serial_number for leaf in range(2))
    revoke(folder, ["leaf-0"])
    assert listed.serials() == {first}
    revoke(folder, ["leaf-1"])
    assert listed.serials() == {first, second}


def test_another_authority_s_list_and_a_spoilt_one_do_not_count(folder, tmp_path):
    make_certificates(tmp_path / "two", CertificateRequest(leaves=1))
    revoke(folder, ["leaf-0"])
    listed = Revoked(folder, read_certificate(folder / "ca.crt"))
    before = listed.serials()
    assert len(before) == 1
    revoke(tmp_path / "two", ["leaf-0"])
    for content, telling in (
        ((tmp_path / "two" / FILE).read_bytes(), "must be signed by the ca.crt beside it"),
        (b"nothing", "must be a revocation list"),
    ):
        (folder / FILE).write_bytes(content)
        assert listed.serials() == before
        with pytest.raises(ConfigError, match=telling):
            Revoked(folder, read_certificate(folder / "ca.crt"))
    (folder / FILE).unlink()
    assert listed.serials() == before


@pytest.fixture
def clock(monkeypatch):
    """Sets the clock of the module forward by some time."""

    def set_forward(by):
        class Clock(datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.now(tz) + by

        monkeypatch.setattr(revocations, "datetime", Clock)

    return set_forward


def test_a_list_made_by_a_clock_that_is_a_little_ahead_is_in_force_at_once(folder, clock):
    listed = Revoked(folder, read_certificate(folder / "ca.crt"))
    clock(timedelta(minutes=30))
    revoke(folder, ["leaf-0"])
    clock(timedelta(0))
    assert len(listed.serials()) == 1


def test_a_list_that_is_not_in_force_yet_is_read_again_until_it_is(folder, clock, caplog):
    listed = Revoked(folder, read_certificate(folder / "ca.crt"))
    clock(timedelta(hours=3))
    revoke(folder, ["leaf-0"])
    clock(timedelta(0))
    assert not listed.serials()
    assert not listed.serials()
    (line,) = (record.getMessage() for record in caplog.records)  # said once
    assert "it is not in force before" in line
    assert line.count("must be a revocation list") == 1
    clock(timedelta(hours=3))
    assert len(listed.serials()) == 1
