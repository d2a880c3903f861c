"""Whole runs on the virtual clock: killed (SIGKILL) at random moments, and by any number of workers."""

import hashlib
import io

import pytest
from killed_runs import carry_out_with_kills, uninterrupted
from small_data import nine_users

from fedge import simulate
from fedge.config.registers.parts import SERVER_RULES

FILES = (
    "checkpoints/final.safetensors", "devices/versions.csv", "devices/jobs.csv", "devices/devices.csv",
    "devices/staleness.csv", "metrics/leaf_rounds.csv",
)  # fmt: skip
CONFIG = {
    "report": False, "train.model": "mlp-tiny", "train.local-epochs": 1, "seed": 5, "run-name": "killed",
    "data.path": nine_users(), "scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False,
    "hierarchy.num-servers": 3, "num-server-rounds": 8, "clients": 36, "devices.pieces": 2,
    "devices.dropout": 0.1, "asynchrony.rule": "fedbuff", "asynchrony.rule-args": '{"buffer": 3}',
    "asynchrony.concurrency": 12, "asynchrony.evaluate-every-s": 2.0,
}  # fmt: skip


@pytest.mark.extended
def test_killed_twice_at_random_moments(tmp_path):
    folder = carry_out_with_kills(tmp_path, CONFIG, kills=2, seed=1)
    whole = uninterrupted(tmp_path, CONFIG)
    for name in FILES:
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name


DEEP = {
    **{name: value for name, value in CONFIG.items() if name != "hierarchy.num-servers"},
    "hierarchy.tree": "2x2x9", "asynchrony.cloud-delay-s": 0.3,
    "asynchrony.tiers": '{"region": {"rule": "fedavg", "delay-s": 0.1}}',
}  # fmt: skip


@pytest.mark.extended
def test_a_deeper_tree_killed_on_ray_and_by_any_number_of_workers(tmp_path):
    for name in ("here", "ray"):
        (tmp_path / name).mkdir()
    here = carry_out_with_kills(tmp_path / "here", DEEP, kills=3, seed=3)
    on_ray = carry_out_with_kills(tmp_path / "ray", DEEP, kills=1, seed=4, options=("--engine", "flower"))
    runs = [
        simulate({**DEEP, "runs-dir": str(tmp_path / str(n))}, workers=n, terminal=io.StringIO())
        for n in (1, 2, 4)
    ]
    for name in (*FILES, "metrics/servers.csv"):
        folders = (here, on_ray, *(run.folder for run in runs))
        assert len({hashlib.sha256((of / name).read_bytes()).hexdigest() for of in folders}) == 1, name


@pytest.mark.whole_runs
def test_servers_of_a_deeper_tree_are_in_the_tables(tmp_path):
    run = simulate(
        {**DEEP, "run-name": "", "num-server-rounds": 3, "runs-dir": str(tmp_path)}, terminal=io.StringIO()
    )
    last = run.servers.filter(run.servers["global_round"] == 3)
    assert last["path"].to_list() == ["/", "/0", "/0/0", "/0/1", "/1", "/1/0", "/1/1"]
    assert last["name"].to_list() == ["cloud", "region", "leaf", "leaf", "region", "leaf", "leaf"]
    between = run.servers.filter(run.servers["tier"] > 0)
    totals = run.versions.row(-1, named=True)
    assert between["uplink_bytes"].sum() == totals["cloud_uplink_bytes"]
    assert between["downlink_bytes"].sum() == totals["cloud_downlink_bytes"]
    assert run.versions["version"][-1] > 0


RULES = [name for name in SERVER_RULES.names if name != "off"]
BUFFERED = {"fedbuff", "ca2fl", "fedfa"}
REVIVED = '{"freeze": 1, "warmup": 2, "s_max": 3, "teachers": 3, "steps": 2, "every": 3%s}'
LEVELS = [
    *((rule, "") for rule in RULES), *((rule, "fedbuff") for rule in RULES),
    *(("fedbuff", rule) for rule in RULES if rule != "fedbuff"),
]  # fmt: skip


def arguments(rule, buffer):
    """The arguments of a rule with a buffer, as JSON."""
    if rule == "fedrevive":
        return REVIVED % f', "buffer": {buffer}'
    return f'{{"buffer": {buffer}}}' if rule in BUFFERED else ""


@pytest.mark.extended
@pytest.mark.parametrize(("rule", "cloud_rule"), LEVELS)
def test_model_curve_and_histogram_are_the_same_for_any_number_of_workers(tmp_path, rule, cloud_rule):
    """Every rule on one level, and on either of two: sha256 of what 1, 2 and 4 workers come to."""
    leaves = {
        "hierarchy.num-servers": 3, "asynchrony.cloud-rule": cloud_rule, "asynchrony.cloud-delay-s": 0.2,
        "asynchrony.cloud-rule-args": arguments(cloud_rule, 1),
    }  # fmt: skip
    config = {
        **CONFIG, "hierarchy.num-servers": 1, **(leaves if cloud_rule else {}), "num-server-rounds": 4,
        "asynchrony.rule": rule, "asynchrony.rule-args": arguments(rule, 2), "run-name": "",
        "runs-dir": str(tmp_path),
    }  # fmt: skip
    runs = [simulate(config, workers=workers, terminal=io.StringIO()) for workers in (1, 2, 4)]
    assert {run.status for run in runs} == {"completed"}
    assert runs[0].versions["version"][-1] > 2
    for name in FILES[:2] + FILES[4:5]:
        assert len({hashlib.sha256((run.folder / name).read_bytes()).hexdigest() for run in runs}) == 1, name


@pytest.mark.whole_runs
def test_a_job_cut_short_stops_at_its_step(tmp_path):
    """The counted part of a job cut short equals the same device's work after as many steps, bit for bit."""
    one = {
        **CONFIG, "hierarchy.num-servers": 1, "asynchrony.concurrency": 1, "devices.dropout": 0.0,
        "run-name": "", "asynchrony.rule": "fedavg", "asynchrony.rule-args": "", "asynchrony.end-versions": 1,
        "devices.preset": "equal", "train.batch-size": 8, "train.local-epochs": 2, "runs-dir": str(tmp_path),
        "devices.traced": 36,
    }  # fmt: skip
    cut = simulate(
        {**one, "devices.partial-work": True, "asynchrony.deadline-s": 0.6}, terminal=io.StringIO()
    )
    (job,) = cut.jobs.to_dicts()
    windows = cut.devices.filter(cut.devices["device"] == job["device"])["train_samples"].item()
    whole = 2 * -(-windows // 8)
    steps = round(job["share"] * whole)
    assert 1 < steps == int(0.6 * whole) < whole
    as_many = simulate({**one, "train.local-steps": steps}, terminal=io.StringIO())
    models = [(run.folder / FILES[0]).read_bytes() for run in (cut, as_many)]
    assert models[0] == models[1]
    assert cut.versions["partial"].to_list() == [1]
    assert as_many.versions["partial"].to_list() == [0]


PARTIAL = {
    **CONFIG, "hierarchy.num-servers": 1, "num-server-rounds": 4, "devices.partial-work": True,
    "train.batch-size": 4, "asynchrony.timeout-s": 0.8, "devices.availability": "markov", "run-name": "",
    "devices.availability-args": '{"on_s": 4.0, "off_s": 1.0}',
}  # fmt: skip


@pytest.mark.extended
def test_jobs_cut_short_are_the_same_for_any_number_of_workers(tmp_path):
    runs = [
        simulate({**PARTIAL, "runs-dir": str(tmp_path)}, workers=workers, terminal=io.StringIO())
        for workers in (1, 2, 4)
    ]
    assert runs[0].versions["partial"][-1] > 5
    for name in FILES:
        assert len({(run.folder / name).read_bytes() for run in runs}) == 1, name


@pytest.mark.extended
def test_on_ray_it_has_the_same_bits_also_when_it_is_killed(tmp_path):
    """Workers of Ray train what the clock hands out; the run is killed (SIGKILL) on the way, and goes on."""
    folder = carry_out_with_kills(tmp_path, CONFIG, kills=1, seed=2, options=("--engine", "flower"))
    whole = uninterrupted(tmp_path, CONFIG)
    for name in FILES:
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
