"""Clustering of leaves: evidence → labels (docs/clustering.md).

`evidence` holds the cloud's knowledge and its questions, `signals` compute similarities, `registry` has the
methods: `hierarchical`, `ifca`, `baselines` and others. `membership` has the groups from step to step,
`cadence` says when leaves are compared. `auto` makes the deal test (`deals`, `closed`), of which `proposals`
`strangers`, `trials` and `mixture` decide each change by itself.

Imports only from below: `algorithm`, `exchange`, `inference`, `parallel` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "affinity": ["affinity_of", "effects"],
        "cloud_part": ["CloudPart", "Family"],
        "evidence": ["Answers", "CrossLosses", "Evidence", "NotComparable", "collect_answers"],
        "hierarchical": ["joined"],
        "ifca": ["Pool"],
        "membership": ["Membership", "events_between"],
        "registry": ["Grouping", "method", "method_named"],
        "signals": ["signal", "similarity_of"],
        "similarity": ["cosine_similarity", "threshold_components", "weight_clustering"],
    },
)
