"""Fixtures of runs with leaf servers: certificates, and the cloud's address."""

import pytest
from leaf_servers import LEAVES

from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.reach import free_port


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A folder with certificates of all leaf servers."""
    folder = tmp_path_factory.mktemp("tls") / "certs"
    make_certificates(folder, CertificateRequest(leaves=LEAVES))
    return folder


@pytest.fixture(scope="module")
def address():
    """Address at which a module's clouds listen."""
    return f"127.0.0.1:{free_port()}"
