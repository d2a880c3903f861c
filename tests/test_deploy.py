"""The files of deploy/, without a daemon: they parse, fit each other, and their commands are Fedge's."""

import os
import re
import shlex
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from fedge.cli import _build_parser
from fedge.launch.command_line import parse_command_line
from tools.image_root import steps_of

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def understood(words):
    """The options of a command line of Fedge."""
    assert words[0] == "fedge"
    return parse_command_line(_build_parser(), [str(word) for word in words[1:]])


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
    assert users == ["USER 1000"], "nothing of a run needs root"
    assert (ROOT / ".dockerignore").is_file()


def test_the_steps_of_the_image_are_known_where_there_is_no_daemon():
    """`make image-root` carries them out: each word is one that it knows, and RUN is one command."""
    steps = steps_of((DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    assert steps[0] == ("FROM", "python:3.11-slim")
    assert {word for word, _ in steps} <= {"FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER", "CMD"}
    assert ("USER", "1000") in steps
    assert steps_of("FROM a\n# b\nRUN c \\\n  && d\n") == [("FROM", "a"), ("RUN", "c   && d")]


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


def test_compose_has_a_superlink_and_nodes_that_fit_each_other():
    compose = yaml.safe_load((DEPLOY / "superlink.yml").read_text(encoding="utf-8"))
    services = compose["services"]
    server = understood(services["superlink"]["command"])
    assert (server.nodes, server.control) == ("0.0.0.0:9092", "127.0.0.1:9093")
    assert "ports" not in services["superlink"], "the Control API stays in the container"
    there = {volume.split(":")[1] for volume in services["superlink"]["volumes"]}
    assert {f"/work/certs/{name}" for name in ("ca.crt", "superlink.crt", "superlink.key")} <= there
    assert any(str(server.folder).startswith(f"{mount}/") for mount in there)
    nodes = {name: service for name, service in services.items() if name.startswith("node")}
    for number, (name, service) in enumerate(nodes.items()):
        node = understood(service["command"])
        assert (name, node.partition, node.of) == (f"node-{number}", number, len(nodes))
        assert node.superlink == f"superlink:{services['superlink']['expose'][0]}"
        mounts = dict(volume.split(":")[1::-1] for volume in service["volumes"])
        assert mounts[f"/work/certs/node-{number}"] == f"../certs/node-{number}"
        assert mounts[str(node.data_folder)] == f"../dealt/client-{number}"
        assert f"/work/certs/node-{number}.pub" in there
        assert "/work" / node.certs / "ca.crt" == Path("/work/certs/ca.crt")
    named = {volume.split(":")[0] for volume in services["superlink"]["volumes"] if volume[0] != "."}
    assert named <= compose["volumes"].keys()


def test_a_superlink_and_nodes_on_kubernetes_fit_each_other():
    text = (DEPLOY / "kubernetes" / "superlink.yml").read_text(encoding="utf-8")
    objects = {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(text)}
    service = objects["Service", "fedge-superlink"]
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    server, nodes = (objects["StatefulSet", name]["spec"] for name in ("fedge-superlink", "fedge-node"))
    for one in (server, nodes):
        assert one["selector"]["matchLabels"] == one["template"]["metadata"]["labels"]
        (container,) = one["template"]["spec"]["containers"]
        volumes = {volume["name"] for volume in one["template"]["spec"]["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in one["volumeClaimTemplates"]}
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    assert service["spec"]["selector"] == server["selector"]["matchLabels"]
    (container,) = server["template"]["spec"]["containers"]
    assert {port["containerPort"] for port in container["ports"]} == set(ports.values()) == {9092}
    link = understood(container["command"])
    assert (link.nodes, str(link.certs)) == (f"0.0.0.0:{ports['fleet']}", "/certs")
    (container,) = nodes["template"]["spec"]["containers"]
    shell, _, line = container["command"]
    spelt = subprocess.run(
        [shell, "-c", line.partition(";")[2].partition("done;")[2].replace("exec fedge", "echo fedge")],
        env={"HOSTNAME": "fedge-node-2", "PATH": os.environ["PATH"]},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    node = understood(spelt.stdout.split())
    assert (node.partition, node.of) == (2, nodes["replicas"])
    assert node.superlink == f"fedge-superlink:{ports['fleet']}"
    assert str(node.data_folder).startswith("/own/")
    listed = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text(encoding="utf-8"))
    assert set(listed["resources"]) == {file.name for file in (DEPLOY / "kubernetes").glob("*.yml")}


def commands_of(page, program):
    """The command lines of a program: between backquotes of a page, in comments of a file."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if page.endswith(".md"):
        shown = re.findall(rf"`((?:SEED=\d+ )?{program} [^`]*)`", re.sub(r"\n *", " ", text))
        shown += re.findall(rf"^{program} .*$", text, re.MULTILINE)
    else:
        shown = re.findall(rf"^#\s+({program} .*)$", text, re.MULTILINE)
    return [re.sub(r"^SEED=\d+ ", "", words) for words in shown]


@pytest.mark.parametrize(
    "page",
    [
        "docs/machines.md",
        "docs/leaf-servers.md",
        "docs/clusters.md",
        "deploy/superlink.yml",
        "deploy/compose.yml",
        "deploy/kubernetes/superlink.yml",
        "deploy/kubernetes/leaf-servers.yml",
    ],
)
def test_fedges_commands_of_a_page_are_commands_of_fedge(page):
    """Their effects are shown by tests/deployed and tests/runs."""
    shown = [words for words in commands_of(page, "fedge") if "…" not in words and "WORDS" not in words]
    assert shown
    for words in shown:
        given = [
            {"N": "1", "HOST:PORT": "h:1", "FOLDER": "x"}.get(word, word)
            for word in shlex.split(words, comments=True)
        ]
        if given[1:] and len(given) > 2:  # with less a command is only named
            understood(given)


FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
DOORS = ["README.md", *(f"docs/{name}.md" for name in ("machines", "leaf-servers", "clusters", "running"))]


@pytest.mark.parametrize("file", [*FILES, *(ROOT / name for name in DOORS)], ids=lambda path: path.name)
def test_nothing_starts_flower_s_own_superlink_which_leaves_a_port_open(file):
    """Named it may be, with a warning; in a command or a shell block of a page it is not."""
    text = file.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if "flower-superlink" in line]
    if file.suffix != ".md":
        assert lines == []
    assert [line for line in lines if re.search(r"flower-superlink -", line)] == []


@pytest.mark.parametrize(
    "file", [file for file in FILES if file.suffix == ".yml"], ids=lambda path: path.name
)
def test_no_container_gets_the_authority_s_key_nor_another_s(file):
    """By files, never by a whole folder of certificates; of secrets each pod of a set sees its own part."""
    text = file.read_text(encoding="utf-8")
    assert "ca.key" not in text
    assert not re.search(r"--from-file=certs(\s|$)", text)
    for given in yaml.safe_load_all(text):
        for name, service in given.get("services", {}).items():
            mounted = [volume.split(":")[0] for volume in service["volumes"] if "certs" in volume]
            keys = {Path(path).name for path in mounted if not path.endswith((".crt", ".pub"))}
            assert keys == {name if name.startswith("node") else f"{name}.key"}
        if given.get("kind") == "StatefulSet" and given["spec"]["replicas"] > 1:
            pod = given["spec"]["template"]["spec"]
            (volume,) = [one["secret"] for one in pod["volumes"] if "secret" in one]
            (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "certs"]
            assert mount["subPathExpr"] == "$(POD)"
            for number in range(given["spec"]["replicas"]):
                own = f"{given['metadata']['name']}-{number}/"
                keys = {one["key"] for one in volume["items"] if one["path"].startswith(own)}
                kind = given["metadata"]["name"].removeprefix("fedge-")
                named = {f"{kind}-{number}.crt", f"{kind}-{number}.key"}
                assert keys - {"ca.crt"} == ({f"{kind}-{number}"} if kind == "node" else named)


def test_pods_can_read_their_keys_and_write_their_volumes():
    """The image's user is in no group of root's: fsGroup names its own, and secrets are readable by that."""
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    (uid,) = re.findall(r"useradd .*--uid (\d+) fedge", dockerfile)
    for file in (DEPLOY / "kubernetes").glob("*-*.yml"):
        for one in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            pod = one["spec"].get("template", {}).get("spec")
            if pod:
                assert pod["securityContext"] == {"fsGroup": int(uid)}
                assert {v["secret"]["defaultMode"] for v in pod["volumes"] if "secret" in v} == {0o440}
                assert {c["imagePullPolicy"] for c in pod["containers"]} == {"IfNotPresent"}


@pytest.fixture
def slurm(tmp_path):
    """A folder of stand-ins: srun carries out what it is given, fedge writes down how it was called."""
    for name, body in (
        (
            "srun",
            f'echo "$*" >> {tmp_path}/steps\nwhile [[ "$1" == --* ]]; do shift; done\nexec "$@"\n',
        ),
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
    steps = (slurm / "steps").read_text().splitlines()
    assert len(steps) == 4, "a process that is no step shares the cores of one, and may outlive its job"
    assert all({"--nodes=1", "--ntasks=1", "--cpus-per-task=2", "--exact"} <= set(s.split()) for s in steps)
    assert [step for step in steps if "--relative=0" in step] == [
        step for step in steps if "fedge run" in step
    ]
    directives = re.findall(r"^#SBATCH (\S+)", script.read_text(), re.MULTILINE)
    assert "--no-requeue" in directives, "from the beginning it would make a second run"
    assert any(word.startswith("--mem-per-cpu=") for word in directives), (
        "else one step takes a node's memory"
    )


def test_a_slurm_job_goes_on_with_a_run_and_takes_windows_of_a_user(slurm):
    given = {"SLURM_NTASKS": "3", "SLURM_CPUS_PER_TASK": "1", "DATA": "windows.npz"}
    env = {**os.environ, **given, "PATH": f"{slurm}:{os.environ['PATH']}"}
    script = DEPLOY / "slurm" / "leaf-servers.sh"
    for words in (["-c", "clients=9"], ["resume", "runs/a", "-c", "num-server-rounds=9"]):
        subprocess.run([script, *words], env=env, check=True, timeout=30, cwd=slurm)
    calls = [understood(shlex.split(line)) for line in (slurm / "calls").read_text().splitlines()]
    begun = next(call for call in calls if "clients=9" in (getattr(call, "run_config", None) or []))
    assert begun.run_config[-1].replace('"', "") == f"data.path={slurm / 'windows.npz'}"
    resumed = next(call for call in calls if getattr(call, "run", "") and str(call.run) == "runs/a")
    assert (resumed.leaves, resumed.run_config) == (begun.leaves, ["num-server-rounds=9"])
    leaves = [call for call in calls if hasattr(call, "cloud")]
    assert [str(leaf.data) for leaf in leaves] == [str(slurm / "windows.npz")] * 4


def made_for_the_user():
    """Folders that the image's user can write, as its Dockerfile makes them."""
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    (made, owned) = re.search(r"mkdir -p (\S+(?: \S+)*) && chown -R fedge (\S+)", dockerfile).groups()
    return [folder for folder in made.split() if folder.startswith(owned)]


@pytest.mark.parametrize("name", ["compose.yml", "superlink.yml"])
def test_volumes_of_compose_are_writable_by_the_image_s_user(name):
    """A new volume takes its owner from the folder of the image that it covers; another one is root's."""
    compose = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    for service in compose["services"].values():
        mounts = [volume.split(":") for volume in service["volumes"]]
        volumes = {mount[0]: mount[1] for mount in mounts if not mount[0].startswith(".")}
        assert set(volumes.values()) <= set(made_for_the_user())
        assert volumes.keys() <= compose["volumes"].keys()
        assert all(mount[2:] == ["ro"] for mount in mounts if mount[0].startswith(".")), "the host's are read"


def test_the_memory_of_a_method_lies_on_a_volume_of_its_node():
    """In the container or pod itself it would go with it, and its client fail in every round."""
    services = yaml.safe_load((DEPLOY / "superlink.yml").read_text(encoding="utf-8"))["services"]
    for name in (name for name in services if name.startswith("node")):
        place = services[name]["environment"]["XDG_STATE_HOME"]
        assert f"{name}:{place}" in services[name]["volumes"]
    text = (DEPLOY / "kubernetes" / "superlink.yml").read_text(encoding="utf-8")
    (pod,) = [
        one["spec"]["template"]["spec"]
        for one in yaml.safe_load_all(text)
        if one["metadata"]["name"] == "fedge-node"
    ]
    (container,) = pod["containers"]
    (place,) = [one["value"] for one in container["env"] if one["name"] == "XDG_STATE_HOME"]
    assert place in [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "own"]


def test_all_files_start_one_image_and_no_other():
    """By the name under which the Dockerfile's first lines build it."""
    (built,) = re.findall(r"docker build -t (\S+)", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    named = set()
    for file in (file for file in FILES if file.suffix == ".yml"):
        named |= set(re.findall(r"^\s*image: (\S+)", file.read_text(encoding="utf-8"), re.MULTILINE))
    assert {name.partition(":")[0] for name in named} == {built}


def test_every_task_of_a_slurm_job_gets_its_cores():
    """From Slurm 22.05 on srun does not take them over from sbatch."""
    script = (DEPLOY / "slurm" / "leaf-servers.sh").read_text(encoding="utf-8")
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    given = re.findall(r"^#SBATCH --(\S+?)=(\S+)$", script, re.MULTILINE)
    assert dict(given).keys() >= {"ntasks", "cpus-per-task", "time"}
    commands = [line for line in script.splitlines() if re.search(r"\bsrun ", line)]
    assert commands
    assert [line for line in commands if '--cpus-per-task="$SLURM_CPUS_PER_TASK"' not in line] == []
