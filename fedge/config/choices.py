"""The names that options can be set to: what `fedge.config.sections` declares, `contradictions` reads."""

MODELS = (
    "cnn",
    "cnn-pool",
    "linear",
    "mlp-tiny",
)  # those of fedge/training/models.py, which needs torch to be asked
MODELS_WITH_BATCH_NORM = ("cnn", "mlp-tiny")
LEAF_STRATEGIES = (
    "fedavg", "fedmedian", "fedtrimmedavg", "krum", "multikrum", "bulyan",
    "fedavgm", "fedadagrad", "fedadam", "fedyogi", "qfedavg",
)  # fmt: skip
PARTITION_KINDS = ("user", "device", "dirichlet", "iid", "imbalance")
CLUSTER_SIGNALS = ("weights", "update", "update-head", "cross-loss", "cross-loss-rows", "affinity")
METHODS_WITH_TRUTH = ("oracle", "random")
METHODS_BY_TIME = ("cfl", "flhc", "kmeans")  # they group when it is time
CLUSTER_METHODS = (  # those of fedge/clustering/registry.py
    "components", "agglomerative", "spectral", "alone", "ifca", "cfl", "flhc", "kmeans", *METHODS_WITH_TRUTH,
)  # fmt: skip
CLUSTER_LINKAGES = ("average", "complete")
BY_THRESHOLD, BY_TEST = "threshold", "auto"  # how clusters are counted where their number is not given
GATE_RULES = ("published", "after-round", "one-standard-error", "paired")
PERSONAL_LAYERS = ("none", "head", "batch-norm", "both")
PRIVACY_KINDS = ("off", "server-fixed", "server-adaptive", "client-fixed", "client-adaptive", "local")
SCENARIOS = ("none", "rotate", "flip", "gain", "rate", "label-permutation", "label-skew")
TRACKERS = ("none", "tensorboard", "wandb", "mlflow")
