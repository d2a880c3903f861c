"""A run's folder with one file as somebody else may have made it, by a seed.

Manifest, private.json, card and header of models, manifests and headers of checkpoints, those forged with the
right checksums, too: whoever can forge a file can forge its sum.
"""

import hashlib
import json

import numpy as np
from odd_json import CODE, changed, text_of

from fedge.inference import card as cards
from fedge.states.checkpoint import _manifest_bytes

KINDS = (
    "manifest", "private", "checkpoint", "forged checkpoint", "header", "forged header", "card",
    "forged state",
)  # fmt: skip
STATE = ("strategy", "remarks", "callbacks", "table")  # of a checkpoint: what a run goes on with


def spoil_folder(folder, seed):
    """Spoil one file of a run's folder; returns what it was. A run that was stopped has no models' card."""
    rng = np.random.default_rng([29, seed])
    kind = KINDS[int(rng.integers(len(KINDS)))]
    if kind == "card" and not (folder / "checkpoints" / "final.safetensors").is_file():
        kind = "forged state"
    checkpoint = max(folder.glob("checkpoints/round-*"))
    if kind in ("manifest", "private"):
        path = folder / f"{kind}.json"
        path.write_bytes(text_of(changed(json.loads(path.read_text()), rng, CODE), rng))
    elif kind == "checkpoint":
        path = checkpoint / "manifest.json"
        path.write_bytes(text_of(changed(json.loads(path.read_text()), rng, CODE), rng))
    elif kind == "forged checkpoint":
        forge(checkpoint, lambda content: changed(content, rng, CODE))
    elif kind == "forged state":
        name = STATE[int(rng.integers(len(STATE)))]
        forge(checkpoint, lambda content: with_fact(content, name, lambda of: changed(of, rng, CODE)))
    elif kind in ("header", "forged header"):
        files = sorted(checkpoint.glob("*.safetensors"))
        path = files[int(rng.integers(len(files)))]
        path.write_bytes(with_odd_header(path.read_bytes(), rng))
        if kind == "forged header":
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            forge(checkpoint, lambda content: with_digest(content, path.stem, digest))
    else:
        path = folder / "checkpoints" / "final.safetensors"
        path.write_bytes(with_odd_card(path.read_bytes(), rng))
    return kind


def forge(checkpoint, change):
    """Change what a checkpoint's manifest says, with the checksum that fits."""
    path = checkpoint / "manifest.json"
    path.write_bytes(_manifest_bytes(change(json.loads(path.read_bytes())["content"])))


def with_fact(content, name, change):
    """Content of a checkpoint's manifest, with one of its facts changed."""
    content["facts"][name] = change(content["facts"][name])
    return content


def with_digest(content, group, digest):
    content["files"][group]["sha256"] = digest
    return content


def parts_of(content):
    """Header and data of a safetensors file."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def joined(header, data):
    return len(header).to_bytes(8, "little") + header + data


def with_odd_header(content, rng):
    """A safetensors file with another header, another length of it, or cut."""
    header, data = parts_of(content)
    how = int(rng.integers(6))
    if how == 0:
        return content[: int(rng.integers(len(content)))]
    if how == 1:
        return int(rng.choice([0, 1, 2**31, 2**62])).to_bytes(8, "little") + content[8:]
    return joined(text_of(changed(header, rng), rng), data)


def with_odd_card(content, rng):
    """Models with another card."""
    header, data = parts_of(content)
    said = json.loads(header["__metadata__"][cards.KEY])
    text = text_of(changed(said, rng, CODE), rng).decode("utf-8", errors="replace")
    header["__metadata__"][cards.KEY] = text
    return joined(json.dumps(header).encode(), data)
