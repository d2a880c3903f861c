"""``python -m fedge``: the command `fedge`, for systems on which scripts are not in the path."""

import sys

from fedge.cli import main

if __name__ == "__main__":  # worker processes load the main module again
    sys.exit(main())
