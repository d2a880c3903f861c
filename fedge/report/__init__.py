"""Pages: the report of a run, the comparison of several runs, and the list of all.

Everything here is computed from run folders alone, so a page can be written again at any time. `run_page` is
the report and `sections` its parts, `compare` and `comparison` compare several runs, `listing` is the list,
and `html` has parts common to all pages; `report_hook` is called at the end of a run, `commands` by the
command line.

Imports only from below: `console`, `engine` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "report_hook": ["write_report_at_end"],
        "listing": ["line_of_run"],
        "run_page": ["write_report"],
    },
)
