"""Clustering of leaves: evidence → labels (docs/clustering.md).

`registry` has the methods by name, `signals` the similarities, `cloud_part` a method of the user's at the
cloud; `cadence` says when leaves are compared. Inner rooms: `likeness` is the evidence, `deal_test` tests
what is due to chance, `methods` group, `memberships` are the groups from step to step.

Imports only from below: `algorithm`, `exchange`, `inference`, `parallel` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "likeness.affinity": ["affinity_of", "effects"],
        "cloud_part": ["CloudPart", "Family"],
        "likeness.evidence": ["Answers", "CrossLosses", "Evidence", "NotComparable", "collect_answers"],
        "methods.hierarchical": ["linkage_labels"],
        "methods.ifca": ["Pool"],
        "memberships.membership": ["Membership", "events_between"],
        "registry": ["Grouping", "method", "method_named"],
        "signals": ["signal", "similarity_of"],
        "likeness.similarity": ["cosine_similarity", "threshold_components", "weight_clustering"],
    },
)
