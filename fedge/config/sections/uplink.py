"""Options of the uplink: compression of updates sent by clients and servers."""

from dataclasses import dataclass

from fedge.config.registers import parts
from fedge.config.registers.option import KEYWORDS, Section, option


@dataclass(frozen=True)
class UplinkConfig(Section):
    """Compression of updates on the uplink, tier by tier: `fedge.compression`; see docs/hierarchy.md."""

    SECTION = "uplink"
    clients: str = option(
        parts.UNCOMPRESSED,
        "compression of updates from clients to leaves",
        register=parts.CLIENT_UPLINKS,
    )
    clients_args: str = option("", KEYWORDS, table=True)
    servers: str = option(
        parts.UNCOMPRESSED,
        "compression of updates from leaves and regions to the server above",
        register=parts.SERVER_UPLINKS,
    )
    servers_args: str = option("", KEYWORDS, table=True)

    @property
    def is_on(self) -> bool:
        """Whether anything is compressed."""
        return not self.clients == self.servers == parts.UNCOMPRESSED
