"""`python -m hhar`."""

import sys

from hhar.cli import main

sys.exit(main())
