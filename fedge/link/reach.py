"""Is a server there, and does it show a certificate that the authority at hand has signed?

Asked before Flower is: it tries for ever, and says of a certificate that does not fit that nobody is there.
"""

import socket
import ssl
from pathlib import Path

from fedge.config.option import ConfigError, shown

_REACH_S = 5.0


def is_there(name: str, address: str) -> bool:
    """Whether anybody listens at HOST:PORT; `name` as in `refuse_other_authority`."""
    try:
        socket.create_connection(host_and_port(name, address), _REACH_S).close()
    except OSError:
        return False
    return True


def refuse_other_authority(name: str, address: str, authority: Path | None, known_as: str = "") -> bool:
    """Whether a server with TLS is there.

    Args:
        name: of the option or key that holds the address, for a refusal.
        address: host and port.
        authority: file of the certificates that are trusted; None for those that the system trusts.
        known_as: whom its certificate has to name; by default the host.

    Raises:
        ConfigError: the address is none, the file no certificate, or the server is somebody else.
    """
    host, port = host_and_port(name, address)
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"{authority} must hold certificates, but: {error.strerror or error}") from error
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host, port), _REACH_S) as raw,
            context.wrap_socket(raw, server_hostname=known_as or host),
        ):
            return True
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"{name} must show a certificate for {known_as or host} that {authority or 'the system'} vouches "
            f"for, but at {address}: {error.verify_message.rstrip('.')}; bring ca.crt of its `fedge certs`, "
            f"with --hosts ROLE={host}"
        ) from error
    except ssl.SSLError as error:
        raise ConfigError(
            f"{name} must speak TLS, but {address} does not ({error.reason or error}); check the port"
        ) from error
    except OSError:
        return False


def host_and_port(name: str, address: str) -> tuple[str, int]:
    """The parts of HOST:PORT.

    Raises:
        ConfigError: it is something else.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"{name} must be HOST:PORT, as 10.0.0.1:9092, but is {shown(address)}")
    return host.strip("[]"), int(port)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
