"""The sweep file of tests of sweeps: small runs of two seeds."""

_SWEEP = """
[sweep]
seeds = [1, 2]
supernodes = 4
runs-dir = "{runs}"

[base]
data.path = "synthetic"
train.model = "linear"
train.local-epochs = 1
num-server-rounds = {rounds}
{options}
[[variants]]
name = "hierfl"
cluster.enabled = false
{variants}"""


def write_sweep(folder, rounds=2, options="", variants=""):
    """Write s.toml in a folder, with further options of all runs and further lines; return its path."""
    path = folder / "s.toml"
    path.write_text(_SWEEP.format(runs=folder / "runs", rounds=rounds, options=options, variants=variants))
    return path
