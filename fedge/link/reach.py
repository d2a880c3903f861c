"""Checks of a server before Flower connects: does it answer, with a certificate of the given authority?

Flower itself retries forever, and reports a wrong certificate as an unreachable server.
"""

import re
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedge.config.registers.option import ConfigError, shown

_CONNECT_S = 5.0
# OpenSSL's codes of a refused certificate: not valid yet or any more; and of an unknown authority
_OUTDATED, _OF_ANOTHER = {9, 10}, {2, 7, 18, 19, 20, 21}
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Za-z:.%]+\]|[^][:/@\s]+):(?P<port>[0-9]{1,5})")


def is_listening(name: str, address: str) -> bool:
    """Whether a server listens at HOST:PORT; `name` as in `refuse_other_authority`."""
    return not fault_of_reaching(name, address)


def fault_of_reaching(name: str, address: str) -> str:
    """Reason why no server can be reached at HOST:PORT, such as an unknown name; empty if one can."""
    try:
        socket.create_connection(host_and_port(name, address), _CONNECT_S).close()
    except OSError as error:
        return str(error.strerror or error)
    return ""


def refuse_other_authority(name: str, address: str, authority: Path | None, known_as: str = "") -> bool:
    """Whether a TLS server answers at an address.

    Args:
        name: name of the option or key for the address, for error messages.
        address: HOST:PORT.
        authority: file of trusted certificates; None for the system's.
        known_as: required name of the certificate; empty for the host.

    Raises:
        ConfigError: the address or the authority file is invalid, or the server's certificate does not fit.
    """
    host, port = host_and_port(name, address)
    if authority is not None:
        from fedge.link.certificate_checks import refuse_unusable_authority  # loads cryptography

        refuse_unusable_authority(Path(authority))
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:  # includes ssl.SSLError
        raise ConfigError(
            f"{authority} must contain certificates, but: {error.strerror or error}; copy it again"
        ) from error
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host, port), _CONNECT_S) as raw,
            context.wrap_socket(raw, server_hostname=known_as or host),
        ):
            return True
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"{name} must have a certificate for {known_as or host} signed by {authority or 'the system'}, "
            f"but at {address}: {error.verify_message.rstrip('.')}; {_step_for(error, known_as, host)}"
        ) from error
    except ssl.SSLEOFError:  # closed without an answer, e.g. by a proxy whose server is not up yet
        return False
    except ssl.SSLError as error:
        raise ConfigError(
            f"{name} must speak TLS, but {address} does not ({error.reason or error}); check the port"
        ) from error
    except OSError:
        return False


def _step_for(error: ssl.SSLCertVerificationError, known_as: str, host: str) -> str:
    """Next step after a server's certificate was refused."""
    if error.verify_code in _OUTDATED:
        return "renew it there, and correct the clock of the machine whose clock is wrong"
    if error.verify_code in _OF_ANOTHER:
        return "copy ca.crt of its `fedge certs`"
    role = "" if known_as else f", with --hosts ROLE={host}"
    return f"create it again there with fedge certs{role}"


def host_and_port(name: str, address: str, least: int = 1) -> tuple[str, int]:
    """Host and port of HOST:PORT; an address of IP version 6 is in brackets: [::1]:9092.

    Args:
        name: name of the option or key, for error messages.
        address: the address.
        least: smallest port; 0 to listen on a free one.

    Raises:
        ConfigError: `address` has another form.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or not _can_be_resolved(match["host"]) or not least <= int(match["port"]) < 65536:
        raise ConfigError(
            f"{name} must be HOST:PORT, e.g. 10.0.0.1:9092 or [::1]:9092, but is {shown(address)}"
        )
    return match["host"].strip("[]"), int(match["port"])


def _can_be_resolved(host: str) -> bool:
    """Whether a host has a form that can be looked up; for others, sockets do not raise OSError."""
    try:
        return "\0" not in host and bool(host.encode("idna"))
    except UnicodeError:  # an empty label (a..b), a label over 63 characters, or bytes that are not text
        return False


def fault_of_listening(address: str) -> str:
    """Reason why this machine cannot listen at HOST:PORT, found by listening for a moment; empty if it can.

    A name may have several addresses; one is enough.
    """
    host, port = host_and_port("the address", address, least=0)
    try:
        candidates = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:  # the name is unknown
        return str(error.strerror or error)
    faults = [_fault_of_binding(family, sockaddr) for family, _, _, _, sockaddr in candidates]
    return "" if "" in faults else faults[-1]


def _fault_of_binding(family: int, sockaddr: tuple[Any, ...]) -> str:
    """Reason why a socket's address cannot be listened on; empty if it can."""
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(sockaddr)
            probe.listen()
    except OSError as error:
        return str(error.strerror or error)
    return ""


def free_port() -> int:
    """A free port of the loopback interface."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different free ports of the loopback interface."""
    with ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in sockets]
