"""Windows → clients → training, validation and test windows; planted groups of leaves.

`partition` deals windows to clients, by whole `owners` or by `shares`; `split` divides windows into training,
validation and test, called by `window_split` for the windows of a file; `scenario` plants groups, `prepared`
writes windows to files mapped by clients, `composition` describes each client's windows.

Imports only from below: `privacy`, `states`, `timing`, `metrics` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "composition": ["Holding", "class_gap", "holdings"],
        "partition": ["Partition"],
        "prepared": [
            "ClientData",
            "DataShape",
            "DataSource",
            "load_source",
            "open_client",
            "write_client_data",
        ],
        "scenario": ["Scenario", "make_scenario"],
        "split": ["split_by_blocks", "split_by_session"],
    },
)
