"""The files of deploy/, without a daemon: they parse, fit each other, and their commands are Fedge's."""

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from fedge.cli import _parser
from fedge.launch.command_line import read

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def understood(words):
    """Return the options of a command line of Fedge."""
    assert words[0] == "fedge"
    return read(_parser(), [str(word) for word in words[1:]])


def test_the_image_copies_what_is_there_and_all_that_is_needed():
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    known = {"FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER", "CMD"}
    assert {line.split()[0] for line in lines} == known
    copied = {word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]}
    assert [name for name in copied if not (ROOT / name).exists()] == []
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (packages,) = re.findall(r"^packages = \[(.*)\]", project, re.MULTILINE)
    included = re.search(r"force-include\]\n((?:\".*\n)+)", project)
    needed = set(re.findall(r'"([\w.]+)"', packages))
    needed |= set(re.findall(r'^"([^"]+)"', included[1], re.MULTILINE))
    assert needed <= copied
    users = [line for line in lines if line.startswith("USER")]
    assert users == ["USER fedge"], "nothing of a run needs root"
    assert (ROOT / ".dockerignore").is_file()


def test_compose_has_a_cloud_and_as_many_leaf_servers_as_it_waits_for():
    services = (compose := yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8")))["services"]
    cloud = understood(services["cloud"]["command"])
    host, _, port = cloud.leaves.rpartition(":")
    assert (host, services["cloud"]["expose"]) == ("0.0.0.0", [port])
    leaves = {name: understood(s["command"]) for name, s in services.items() if name.startswith("leaf")}
    assert [leaf.leaf for leaf in leaves.values()] == list(range(3))
    assert {leaf.cloud for leaf in leaves.values()} == {f"cloud:{port}"}
    for service in services.values():
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).resolve().is_file()
        named = {volume.split(":")[0] for volume in service["volumes"] if not volume.startswith(".")}
        assert named <= compose["volumes"].keys()
    folders = [next(v for v in services[name]["volumes"] if v.endswith(":/work/own")) for name in leaves]
    assert len(set(folders)) == 3
    assert {str(leaf.folder) for leaf in leaves.values()} == {"/work/own"}


def test_kubernetes_objects_fit_each_other():
    text = (DEPLOY / "kubernetes" / "leaf-servers.yml").read_text(encoding="utf-8")
    objects = {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(text)}
    service, job = objects["Service", "fedge-cloud"], objects["Job", "fedge-cloud"]
    pods, leaves = job["spec"]["template"], objects["StatefulSet", "fedge-leaf"]
    assert service["spec"]["selector"].items() <= pods["metadata"]["labels"].items()
    (container,) = pods["spec"]["containers"]
    cloud = understood(container["command"])
    port = service["spec"]["ports"][0]["port"]
    assert cloud.leaves == f"0.0.0.0:{port}"
    assert container["ports"] == [{"containerPort": port}]
    assert leaves["spec"]["selector"]["matchLabels"] == leaves["spec"]["template"]["metadata"]["labels"]
    assert leaves["spec"]["replicas"] == 3
    (leaf,) = leaves["spec"]["template"]["spec"]["containers"]
    shell, _, line = leaf["command"]
    spelt = subprocess.run(
        [shell, "-c", line.replace("exec fedge", "echo fedge")],
        env={"HOSTNAME": "fedge-leaf-2", "PATH": os.environ["PATH"]},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    options = understood(spelt.stdout.split())
    assert (options.leaf, options.cloud, str(options.folder)) == (2, f"fedge-cloud:{port}", "/own")
    claim = objects["PersistentVolumeClaim", "fedge-runs"]["metadata"]["name"]
    assert claim in str(pods["spec"]["volumes"])
    assert leaves["spec"]["volumeClaimTemplates"][0]["metadata"]["name"] == leaf["volumeMounts"][1]["name"]


@pytest.fixture
def slurm(tmp_path):
    """A folder of stand-ins: srun carries out what it is given, fedge writes down how it was called."""
    for name, body in (
        ("srun", 'while [[ "$1" == --* ]]; do shift; done\nexec "$@"\n'),
        ("fedge", f'echo "fedge $*" >> {tmp_path}/calls\n'),
    ):
        path = tmp_path / name
        path.write_text(f"#!/bin/bash\n{body}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def test_a_slurm_job_starts_a_cloud_and_its_leaf_servers(slurm):
    given = {"SLURM_NTASKS": "4", "SLURM_CPUS_PER_TASK": "2"}
    env = {**os.environ, **given, "PATH": f"{slurm}:{os.environ['PATH']}"}
    script = DEPLOY / "slurm" / "leaf-servers.sh"
    subprocess.run([script, "-c", "fedge:fedge"], env=env, check=True, timeout=30)
    calls = [understood(line.split()) for line in (slurm / "calls").read_text().splitlines()]
    cloud = next(call for call in calls if hasattr(call, "leaves"))
    leaves = sorted((call for call in calls if hasattr(call, "cloud")), key=lambda call: call.leaf)
    assert [(leaf.leaf, leaf.once, leaf.workers) for leaf in leaves] == [(n, True, 2) for n in range(3)]
    assert cloud.run_config == ["fedge:fedge", "hierarchy.num-servers=3"]
    assert {leaf.cloud.rpartition(":")[2] for leaf in leaves} == {cloud.leaves.rpartition(":")[2]}
