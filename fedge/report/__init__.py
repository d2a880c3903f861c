"""Pages: the report of a run, the comparison of several, the list of all.

Everything here reads run folders and nothing else, so a page can be made again at any time. `run_page` is the
report and `sections` its parts, `compare` and `comparison` are several runs, `listing` is the list, `html`
parts of all pages; `at_end` is called at the end of a run, `commands` by the command line
calls.

Imports only from below: `console`, `engine` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "at_end": ["report_at_end"],
        "listing": ["listed"],
        "run_page": ["write_report"],
    },
)
