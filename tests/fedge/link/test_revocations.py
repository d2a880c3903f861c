"""The list of certificates that count no more: read again when it changes, and the authority's alone."""

from datetime import datetime, timedelta

import pytest

from fedge.config.registers.option import ConfigError
from fedge.link import revocations
from fedge.link.certificate_checks import read_certificate
from fedge.link.certificates import CertificateRequest, make_certificates, revoke
from fedge.link.revocations import FILE, REPLACED, Revoked


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


def test_certificates_made_anew_before_are_revoked_with_the_present_one(tmp_path):
    folder = tmp_path / "one"
    serials = set()
    for days in (9, 60, 300):  # each has less than a third left of the next
        make_certificates(folder, CertificateRequest(leaves=2, days=days))
        serials.add(read_certificate(folder / "leaf-0.crt").serial_number)
    (folder / "leaf-1.crt").write_text("damaged")
    make_certificates(folder, CertificateRequest(leaves=2, days=300))
    listed = Revoked(folder, read_certificate(folder / "ca.crt"))
    revoke(folder, ["leaf-0"])
    assert len(serials) == 3
    assert listed.serials() == serials
    assert (folder / REPLACED).stat().st_mode & 0o077 == 0
    make_certificates(folder, CertificateRequest(leaves=2, days=300))
    newest = read_certificate(folder / "leaf-0.crt").serial_number
    assert newest not in listed.serials()
    revoke(folder, ["leaf-0"])
    assert listed.serials() == {*serials, newest}


@pytest.mark.parametrize("text", ["leaf-0 zz\n", "leaf-0\n", "ü 1\n"])
def test_a_changed_file_of_replaced_certificates_is_refused_before_anything_is_revoked(folder, text):
    (folder / REPLACED).write_text(text)
    with pytest.raises(ConfigError, match=r"replaced.txt must have lines of a name and a serial number"):
        revoke(folder, ["leaf-0"])
    assert (folder / "leaf-0.crt").is_file()


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
