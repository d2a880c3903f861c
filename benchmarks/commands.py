"""End of a command: missing or damaged data are reported in one line, as in `fedge`."""

import sys
from collections.abc import Callable
from typing import NoReturn

from fedge.config.registers.option import ConfigError
from hhar.errors import HharError


def exit_with(main: Callable[[], int | None]) -> NoReturn:
    """Call `main` and exit with its code; 1, with one line on stderr, if data or options are refused."""
    try:
        code = main()
    except (ConfigError, HharError) as error:
        sys.exit(str(error))
    sys.exit(code)
