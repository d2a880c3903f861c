"""Clustering of leaves: evidence → labels (docs/clustering.md).

`registry` has the methods by name, `signals` the similarities, `cloud_part` the base class of a user's method
at the cloud; `cadence` decides when leaves are compared. Inner rooms: `likeness` is the evidence, `deal_test`
tests whether leaves differ by chance alone, `methods` group, `memberships` are the groups from step to step.

Imports only from below: `algorithm`, `exchange`, `inference`, `parallel` and rooms below them.
"""

from typing import TYPE_CHECKING

import lazy_loader as lazy

if TYPE_CHECKING:
    from fedge.clustering.cloud_part import CloudPart as CloudPart
    from fedge.clustering.cloud_part import Family as Family
    from fedge.clustering.likeness.affinity import affinity_of as affinity_of
    from fedge.clustering.likeness.affinity import effects as effects
    from fedge.clustering.likeness.evidence import Answers as Answers
    from fedge.clustering.likeness.evidence import CrossLosses as CrossLosses
    from fedge.clustering.likeness.evidence import Evidence as Evidence
    from fedge.clustering.likeness.evidence import NotComparable as NotComparable
    from fedge.clustering.likeness.evidence import collect_answers as collect_answers
    from fedge.clustering.likeness.similarity import cosine_similarity as cosine_similarity
    from fedge.clustering.likeness.similarity import threshold_components as threshold_components
    from fedge.clustering.likeness.similarity import weight_clustering as weight_clustering
    from fedge.clustering.memberships.membership import Membership as Membership
    from fedge.clustering.memberships.membership import events_between as events_between
    from fedge.clustering.methods.hierarchical import linkage_labels as linkage_labels
    from fedge.clustering.methods.ifca import Pool as Pool
    from fedge.clustering.registry import Grouping as Grouping
    from fedge.clustering.registry import method as method
    from fedge.clustering.registry import method_named as method_named
    from fedge.clustering.signals import signal as signal
    from fedge.clustering.signals import similarity_of as similarity_of

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
