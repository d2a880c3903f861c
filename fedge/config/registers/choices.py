"""Allowed values of options that name no part; the parts are in `fedge.config.registers.parts`."""

BY_THRESHOLD, BY_TEST = "threshold", "auto"  # how clusters are counted where their number is not given
PERSONAL_LAYERS = ("none", "head", "batch-norm", "both")
PRIVACY_KINDS = ("off", "server-fixed", "server-adaptive", "client-fixed", "client-adaptive", "local")
NOISE_SOURCES = ("seed", "system")
BY_SEED, SORTED = "seed", "sorted"  # how users are dealt to clients
CLOCKS = ("virtual", "real")
