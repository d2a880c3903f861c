"""Options of the way up: codes of what clients and servers send."""

from dataclasses import dataclass

from fedge.config.registers import parts
from fedge.config.registers.option import Section, option


@dataclass(frozen=True)
class UplinkConfig(Section):
    """Compression of updates on their way up, tier by tier: `fedge.compression`; see docs/hierarchy.md."""

    SECTION = "uplink"
    clients: str = option(
        parts.UNCOMPRESSED, "compression of clients' updates to their leaf",
        register=parts.CLIENT_UPLINKS,
    )  # fmt: skip
    clients_args: str = option("", "keyword arguments of the code: clients-args.share=0.1", table=True)
    servers: str = option(
        parts.UNCOMPRESSED, "compression of leaves' and regions' updates to the server above",
        register=parts.SERVER_UPLINKS,
    )  # fmt: skip
    servers_args: str = option("", "keyword arguments of that code", table=True)

    @property
    def is_on(self) -> bool:
        """Whether anything is compressed."""
        return not self.clients == self.servers == parts.UNCOMPRESSED
