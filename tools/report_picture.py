"""Makes docs/images/report.png: the top of the report of a real run, as in a browser.

python -m tools.report_picture        (needs Chromium; half a minute)
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from fedge import simulate

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "report.png"
SIZE = (1000, 1315)  # CSS pixels
COLOURS = 256
RUN = {
    "run-name": "planted-groups",
    "seed": 1,
    "num-server-rounds": 12,
    "data.path": "synthetic",
    "data.synthetic-users": 24,
    "hierarchy.num-servers": 6,
    "partition.unseen-clients": 0,
    "train.local-epochs": 2,
    "scenario": "rotate",
    "cluster.signal": "affinity",
    "cluster.method": "agglomerative",
    "cluster.count": "auto",
    "cluster.level": "auto",
    "cluster.patience": 2,
    "gate.enabled": False,
}


def main() -> int:
    """Carry out the run, and write the picture; returns 2 if there is no browser."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        print("report_picture: Chromium must be installed, but no chromium is on PATH", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        run = simulate({**RUN, "runs-dir": folder}, num_supernodes=24)
        page = (run.folder / "report.html").as_uri()
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE[0]},{SIZE[1]}"]
        command = [browser, *options, f"--screenshot={PICTURE}", page]
        result = subprocess.run(command, stderr=subprocess.DEVNULL, check=False)
    shrink(PICTURE)
    print(PICTURE)
    return result.returncode


def shrink(picture: Path) -> None:
    """Reduce the colours to those needed to distinguish lines."""
    with Image.open(picture) as image:
        reduced = image.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=2)
    reduced.save(picture, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
