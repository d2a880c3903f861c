"""All benchmarks one after another, each in its own process; then the list in docs/benchmarks.md.

python -m benchmarks.all            the quick ones, some minutes
python -m benchmarks.all --full     all of them in their long version
"""

import argparse
import subprocess
import sys

from benchmarks.common import LONG, QUICK, ROOT, write_rows


def main() -> int:
    """Command line; 1 if a benchmark failed."""
    parser = argparse.ArgumentParser(
        description="All benchmarks; results, plots and list in docs/benchmarks."
    )
    parser.add_argument("--full", action="store_true", help="the long ones too, and longer versions of all")
    full = parser.parse_args().full
    failed = []
    for name in (*QUICK, *LONG) if full else QUICK:
        print(f"\n== {name}", flush=True)
        words = [sys.executable, "-m", f"benchmarks.{name}", *(["--full"] if full else [])]
        if subprocess.run(words, cwd=ROOT, check=False).returncode:
            failed.append(name)
    write_rows()
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
