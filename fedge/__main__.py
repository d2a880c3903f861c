"""``python -m fedge``: the command `fedge`, where scripts are not on the path."""

import sys

from fedge.cli import main

if __name__ == "__main__":  # worker processes load the main module again
    sys.exit(main())
