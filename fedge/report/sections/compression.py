"""Section on compressed uploads: a model's bytes before and after the code, tier by tier."""

from collections.abc import Iterator, Mapping
from typing import Any

from fedge.config.registers.parts import UNCOMPRESSED
from fedge.records.reading.reader import RunData
from fedge.report.html.page import PageSection, Panel
from fedge.report.html.tables import NOTHING, bytes_text, table, total

_TIERS = {
    "clients": ("client to leaf", "uplink_bytes"),
    "servers": ("server to the one above", "cloud_uplink_bytes"),
}


def compression_sections(run: RunData) -> list[PageSection]:
    """The section, for a run with compressed uploads; empty for others."""
    codes = {tier: str(run.config.get(f"uplink.{tier}", UNCOMPRESSED)) for tier in _TIERS}
    if set(codes.values()) == {UNCOMPRESSED}:
        return []
    sentence = (
        "Uploads are compressed updates, by "
        + " and ".join(f"{code} from {tier}" for tier, code in codes.items() if code != UNCOMPRESSED)
        + "; downloads are whole models."
    )
    headers = ("upload", "code", "a model", "compressed", "factor", "all rounds")
    caption = (
        "A model: its bytes without the code; compressed: with it. All rounds: arrays sent up in the run, "
        "including those beside the model."
    )
    panel = Panel("Bytes of an upload", table(headers, _rows(run, codes)), None, caption, True, True)
    return [PageSection("Compression", [sentence], [panel])]


def _rows(run: RunData, codes: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    """A row per tier; without sizes if the manifest lacks them."""
    for tier, (upload, column) in _TIERS.items():
        size = run.manifest.get("uplink", {}).get(tier)
        sizes = (NOTHING, NOTHING, NOTHING)
        if size:
            model, sent = size["model_bytes"], size["sent_bytes"]
            sizes = (bytes_text(model), bytes_text(sent), f"{model / max(sent, 1):.1f}")
        yield (upload, codes[tier], *sizes, bytes_text(total(run.rounds, column)))
