"""A deployment as a page or a file of deploy/ says it, word by word, and what strangers learn from it.

As a program in namespaces of its own (`ALONE`, by root): so addresses and ports are those of the pages, all
interfaces included, and names of hosts lead to the loopback interface. Changed are numbers of rounds,
of nodes (three, where a page has nine), absolute paths of containers, and the port of a second leaf server.

    python as_said.py WAY FOLDER

prints one JSON object: `doors`, each with who holds it, and `strangers`, what each account learnt where.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from deployment import BIN, flat, listens, wait_until
from flower_runs import ROOT
from processes import MARK, marked
from small_runs import small_config
from strangers import doors
from support_folders import PYTHONPATH, SUPPORT
from unprivileged import unprivileged

from fedge.launch.flower_runs.flower import toml_of
from fedge.launch.flower_runs.superlink import KEEP_ENVIRONMENT
from fedge.launch.projects.packaged import packaged_folder
from fedge.link.certificates import CertificateRequest, make_certificates

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ALONE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
NOBODY = 65534
ROUNDS = 8_000  # until strangers have asked
HOSTS = (
    "superlink.example.org", "cloud.example", "leaf-0.example", "leaf-1.example", "cloud", "superlink",
    "fedge-superlink", "fedge-cloud",
)  # fmt: skip


def can_be_alone():
    """Whether this is root on a Linux that lets it make namespaces."""
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        return False
    return subprocess.run([*ALONE, "ip", "link", "set", "lo", "up"], check=False).returncode == 0


@dataclass
class Way:
    """Processes that one page or file starts.

    Attributes:
        before: commands that come first, and end.
        servers: (name, words, folder) of what stays.
        run: (words, folder) of the run, which comes last.
        read_only: folders that are mounted so.
        restarts: names of the servers that whoever started them starts again.
    """

    before: list = field(default_factory=list)
    servers: list = field(default_factory=list)
    run: tuple = ()
    read_only: list = field(default_factory=list)
    restarts: set = field(default_factory=set)


def shown_in(page):
    """Commands of Fedge that a page shows, between backquotes or in blocks, without comments."""
    text = (ROOT / page).read_text(encoding="utf-8")
    inline = re.findall(r"`((?:SEED=\d+ )?fedge [^`]*)`", re.sub(r"\n *", " ", text))
    blocks = re.findall(r"^(?:SEED=\d+ )?fedge .*$", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in [*blocks, *inline]]


def one(commands, *first):
    """The first command that begins with words and has more."""
    return next(words for words in commands if words[: len(first)] == list(first) and len(words) > len(first))


def three(words):
    """A command for three nodes where it says nine."""
    return [re.sub(r"^(clients=)?9$", r"\g<1>3", re.sub(r"(clients)=9\b", r"\1=3", word)) for word in words]


def machines(folder):
    """docs/machines.md, step by step."""
    commands = shown_in("docs/machines.md")
    way = Way(
        [(three(one(commands, "fedge", "certs")), folder), (three(one(commands, "fedge", "deal")), folder)]
    )
    way.servers.append(("superlink", ["fedge", "superlink"], folder))
    node = three(one(commands, "fedge", "node", "0"))
    for number in range(3):
        own = folder / f"machine-{number}"
        words = [str(number) if word == "0" else word for word in node]
        words[words.index("--data-folder") + 1] = str(folder / "dealt" / f"client-{number}")
        files = {name: folder / "certs" / name for name in ("ca.crt", f"node-{number}", f"node-{number}.pub")}
        way.servers.append((f"node-{number}", words, (own, files)))
    way.run = (three(one(commands, "SEED=42", "fedge", "run", ".", "deployed")), folder)
    return way


def leaves(folder):
    """The first block of docs/leaf-servers.md."""
    commands = shown_in("docs/leaf-servers.md")
    way = Way([(one(commands, "fedge", "certs", "--leaves", "3"), folder)])
    leaf = one(commands, "fedge", "leaf", "0")
    way.servers = [(f"leaf-{n}", [str(n) if w == "0" else w for w in leaf], folder) for n in range(3)]
    way.run = (one(commands, "fedge", "run", "-c", "fedge:fedge"), folder)
    return way


def leaves_of_nodes(folder):
    """The second block; both leaf servers are on this machine, so the second has another port."""
    commands = shown_in("docs/leaf-servers.md")
    certs, deal = one(commands, "fedge", "certs", "--leaves", "2"), one(commands, "fedge", "deal")
    way = Way([(three(certs), folder), (three(deal), folder)])
    leaf = next(words for words in commands if words[:3] == ["fedge", "leaf", "0"] and "--nodes" in words)
    node = three(next(w for w in commands if w[:3] == ["fedge", "node", "0"]))
    for number in range(2):
        words = [str(number) if word == "0" else word for word in leaf]
        way.servers.append((f"leaf-{number}", [w.replace("9092", f"909{2 + number}") for w in words], folder))
    for number in range(3):
        at = f"leaf-{number // 2}.example:909{2 + number // 2}"
        words = [str(number) if word == "0" else word for word in node]
        words[words.index("--superlink") + 1] = at
        words[words.index("--data-folder") + 1] = str(folder / "dealt" / f"client-{number}")
        way.servers.append((f"node-{number}", words, folder))
    way.run = (three(next(w for w in commands if "--owners" in w and len(w) > 3)), folder)
    return way


def said_before(file):
    """Commands of Fedge in the comments of a file of deploy/."""
    text = (ROOT / "deploy" / file).read_text(encoding="utf-8")
    return [shlex.split(line) for line in re.findall(r"^#\s+(fedge (?:certs|deal) .*)$", text, re.MULTILINE)]


def within(place, words):
    """Words of a container whose root is a folder here."""
    return [re.sub(r'(^|=")/', rf"\1{place}/", str(word)) for word in words]


def composed(file, folder, rounds=ROUNDS):
    """A file of Docker Compose: each service in a folder that has what is mounted for it alone."""
    services = yaml.safe_load((ROOT / "deploy" / file).read_text(encoding="utf-8"))["services"]
    way = Way([(words, folder) for words in said_before(file)])
    for name, service in services.items():
        place = folder / "containers" / name
        mounts = [(*volume.split(":"), "rw")[:3] for volume in service["volumes"]]
        files = {t.lstrip("/"): folder / s[3:] if s.startswith("../") else None for s, t, _ in mounts}
        way.read_only += [place / t.lstrip("/") for _, t, how in mounts if how == "ro"]
        words = [
            re.sub("num-server-rounds=10$", f"num-server-rounds={rounds}", str(w)) for w in service["command"]
        ]
        entry = (name, within(place, words), (place, files, "work"))
        if name == "cloud":
            way.run = entry[1:]
        else:
            way.servers.append(entry)
            if service.get("restart") == "unless-stopped":
                way.restarts.add(name)
    return way


def compose(folder, rounds=ROUNDS):
    """deploy/compose.yml."""
    return composed("compose.yml", folder, rounds)


def superlink(folder, rounds=ROUNDS):
    """deploy/superlink.yml; the rounds are those of its project."""
    way = composed("superlink.yml", folder, rounds)
    inside = folder / "containers" / "superlink"
    text = (ROOT / "deploy" / "superlink.yml").read_text(encoding="utf-8")
    (run,) = re.findall(r"exec superlink (fedge run .*)$", text, re.MULTILINE)
    way.run = (within(inside, shlex.split(run)), inside / "work")
    return way


def _pods(file, folder):
    """(name of a pod, its container, files of its secret) of a file for Kubernetes."""
    text = (ROOT / "deploy" / "kubernetes" / file).read_text(encoding="utf-8")
    secrets = {
        name: re.findall(r"--from-file=certs/(\S+)", rest)
        for name, rest in re.findall(r"secret generic (\S+) ((?:.*\\\n#)*.*)", text)
    }
    for object_ in yaml.safe_load_all(text):
        if object_["kind"] not in ("StatefulSet", "Job"):
            continue
        pod = object_["spec"]["template"]["spec"]
        secret = next(v["secret"] for v in pod["volumes"] if v["name"] == "certs")
        for number in range(object_["spec"].get("replicas", 1)):
            name = f"{object_['metadata']['name']}-{number}"
            items = [
                (i["key"], i["path"]) for i in secret.get("items", []) if i["path"].startswith(name + "/")
            ]
            named = items or [(key, f"{name}/{key}") for key in secrets[secret["secretName"]]]
            files = {f"certs/{Path(path).name}": folder / "certs" / key for key, path in named}
            yield object_["kind"], name, pod["containers"][0], files


def kubernetes(file, folder):
    """A file for Kubernetes: each pod in a folder that has its part of the secret, and nothing else."""
    way = Way([(words, folder) for words in said_before(f"kubernetes/{file}")])
    for kind, name, container, files in _pods(file, folder):
        place = folder / "pods" / name
        words = within(place, container["command"])
        if words[0] == "sh":
            line = re.sub(r"(\s)/", rf"\1{place}/", container["command"][-1])
            words = ["env", f"HOSTNAME={name}", "sh", "-c", line]
        entry = (
            name,
            words,
            (place, {**files, "own": None}, container.get("workingDir", "/own").lstrip("/")),
        )
        if kind == "Job":
            way.run = entry[1:]
        else:
            way.servers.append(entry)
            way.restarts.add(name)  # of a StatefulSet, always
    return way


def superlink_pods(folder):
    """deploy/kubernetes/superlink.yml; its comment says what brings a node its windows."""
    way = kubernetes("superlink.yml", folder)
    way.before.append((["fedge", "deal", "dealt", "--clients", "3"], folder))
    for number in range(3):
        at = way.servers[1 + number][2][0] / "own" / "client"
        way.before.append((["cp", "-r", str(folder / "dealt" / f"client-{number}"), str(at)], folder))
    inside = folder / "pods" / "fedge-superlink-0"
    text = (ROOT / "deploy" / "kubernetes" / "superlink.yml").read_text(encoding="utf-8")
    (run,) = re.findall(r"fedge-superlink-0 -- (fedge run .*)$", text, re.MULTILINE)
    way.before.append((["cp", "-r", str(folder / "app"), str(inside / "own" / "app")], folder))
    way.run = (within(inside, shlex.split(run)), inside / "own")
    return way


def leaf_pods(folder):
    """deploy/kubernetes/leaf-servers.yml; FILES of its comment are all pairs of leaf servers."""
    return kubernetes("leaf-servers.yml", folder)


def slurm(folder):
    """deploy/slurm/leaf-servers.sh, with an srun that carries out what it is given."""
    stand_in = folder / "bin" / "srun"
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/bash\nwhile [[ "$1" == --* ]]; do shift; done\nexec "$@"\n')
    stand_in.chmod(0o755)
    file = "slurm/leaf-servers.sh"
    text = (ROOT / "deploy" / file).read_text()
    (certs,) = re.findall(r"^#\s+(fedge certs .*?) &&", text, re.MULTILINE)
    words = [
        "env", f"PATH={stand_in.parent}:{BIN}:{os.environ['PATH']}", "SLURM_NTASKS=4",
        "SLURM_CPUS_PER_TASK=1", "bash", str(ROOT / "deploy" / file), "-c", "fedge:fedge",
    ]  # fmt: skip
    return Way([(shlex.split(certs), folder)], [], (words, folder))


WAYS = {
    "docs/machines.md": machines, "docs/leaf-servers.md": leaves,
    "docs/leaf-servers.md, nodes": leaves_of_nodes,
    "deploy/compose.yml": compose, "deploy/superlink.yml": superlink, "deploy/slurm/leaf-servers.sh": slurm,
    "deploy/kubernetes/superlink.yml": superlink_pods,
    "deploy/kubernetes/leaf-servers.yml": leaf_pods,
}  # fmt: skip


# --- carried out --------------------------------------------------------------------------------------------


class Carried:
    """All processes of one way, in a folder; use as a context manager."""

    def __init__(self, folder, rounds=ROUNDS):
        """Write a project of so many rounds, on data that every machine has, and its copy in app/."""
        self.folder, self.mark, self._started = folder, f"as-said-{folder.name}", []
        self.servers = {}  # name → its process
        given = small_config(
            folder / "data",
            num_server_rounds=rounds,
            seed=42,
            hierarchy__num_servers=3,
            data__path="digits",
        )
        self.write_project(folder, given, "certs/ca.crt")
        self.write_project(folder / "app", given, None)

    def write_project(self, folder, options, authority):
        """A project of these options, whose federation is as docs/machines.md has it."""
        folder.mkdir(exist_ok=True)
        (folder / "README.md").write_text("A trial.\n")
        tool = tomllib.loads((packaged_folder() / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
        config = flat(tool["config"]) | {key: value for key, value in options.items() if key != "runs-dir"}
        table = {
            "project.name": "trial", "project.version": "1.0.0", "project.license": "Apache-2.0",
            "tool.flwr.app.publisher": "trial",
            "tool.flwr.app.components.serverapp": "fedge.server_app:app",
            "tool.flwr.app.components.clientapp": "fedge.client_app:app",
            "tool.flwr.federations.default": "here",
            "tool.flwr.federations.here.options.num-supernodes": 9,
            "tool.flwr.federations.deployed.address": "127.0.0.1:9093",
            "tool.flwr.federations.deployed.root-certificates": authority or "certs/ca.crt",
        } | {f"tool.flwr.app.config.{key}": value for key, value in config.items()}  # fmt: skip
        (folder / "pyproject.toml").write_text(toml_of(table))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._started:
            process.terminate()
        deadline = time.monotonic() + 10
        while (left := marked(self.mark)) and time.monotonic() < deadline:
            time.sleep(0.2)
        for process in left:
            process.kill()

    def environment(self):
        """Of every process: the mark, this environment's programs, quiet engines."""
        kept = {key: value for key, value in os.environ.items() if key != "SEED"}
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", KEEP_ENVIRONMENT: "1"}
        return {**kept, **quiet, "PATH": path, MARK: self.mark, "FLWR_HOME": str(self.folder / "flower")}

    def place(self, where):
        """The folder of a process, with what is mounted for it."""
        if isinstance(where, Path):
            return where
        folder, files, *inside = where
        for name, source in files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source is None:
                target.mkdir(exist_ok=True)
            elif source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                shutil.copy2(source, target)
        found = folder.joinpath(*inside)
        if found != self.folder and not (found / "pyproject.toml").exists():
            shutil.copy2(self.folder / "pyproject.toml", found)
        return found

    def start(self, name, words, where):
        """Start a command, as a user without the rights of root; its output goes to NAME.out."""
        cwd, environment = self.place(where), self.environment()
        while "=" in words[0]:
            key, _, value = words[0].partition("=")
            environment[key], words = value, words[1:]
        with (self.folder / f"{name}.out").open("ab") as out:
            process = subprocess.Popen(
                unprivileged(words), cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                stderr=out, start_new_session=True,
            )  # fmt: skip
        self._started.append(process)
        return process

    def carry_out(self, way):
        """Start all of a way and wait for its first round; the process of the run."""
        for words, where in way.before:
            if words[0] == "cp":
                Path(words[-1]).parent.mkdir(parents=True, exist_ok=True)
            process = self.start("before", words, where)
            assert process.wait(300) == 0, (words, (self.folder / "before.out").read_text())
        for name, words, where in way.servers:
            self.servers[name] = self.start(name, words, where)
            if "superlink" in name:
                wait_until(lambda: listens(9092) and listens(9093), 120, "the SuperLink listens")
        words, where = way.run
        for app in (Path(word) for word in words if word.endswith("/app")):  # of a container, with its paths
            project = app / "pyproject.toml"
            (authority,) = app.parents[1].rglob("ca.crt")
            project.write_text(project.read_text().replace('"certs/ca.crt"', f'"{authority}"'))
        for folder in filter(Path.is_dir, way.read_only):
            for path in [folder, *folder.rglob("*")]:
                path.chmod(path.stat().st_mode & ~0o222)
        run = self.start("run", words, where)
        log = self.folder / "run.out"
        wait_until(lambda: run.poll() is not None or self._works(), 400, "clients have answered")
        assert run.poll() is None, log.read_text()
        return run

    def _works(self):
        """Tell whether clients have answered: a round is done, or a SuperLink has had replies."""
        try:
            logs = [self.folder / "run.out", *self.folder.rglob("flower.log")]
            return any(word in log.read_text() for log in logs for word in ("round 1", "Push replies from"))
        except FileNotFoundError:  # a checkpoint of the run has gone while one looked: look again
            return False

    def doors(self):
        """Of all processes here."""
        return doors(marked(self.mark))


def ask_as(account, carried, ports, authority, others):
    """Answers of ports to strangers of an account."""
    words = [
        "setpriv", f"--reuid={account}", f"--regid={account}", "--clear-groups", sys.executable,
        str(SUPPORT / "ways" / "strangers.py"), ",".join(map(str, ports)), authority, others,
    ]  # fmt: skip
    done = subprocess.run(
        list(map(str, words)), env={**os.environ, "PYTHONPATH": PYTHONPATH, "HOME": "/"}, capture_output=True,
        text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def readable_keys(folder, account):
    """Keys of a folder that an account can read."""
    words = [
        "find",
        str(folder),
        "-name",
        "*.key",
        "-readable",
        "-o",
        "-name",
        "node-?",
        "-readable",
        "-type",
        "f",
    ]
    done = subprocess.run(
        ["setpriv", f"--reuid={account}", "--clear-groups", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.split()


def name_hosts(folder):
    """Let all hosts of the pages lead to this namespace's loopback interface, which is brought up."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    hosts = folder / "hosts"
    own = os.uname().nodename
    hosts.write_text("".join(f"127.0.0.1 {host}\n" for host in ("localhost", own, *HOSTS)))
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)


def main(name, folder):
    """Carry a way out, ask as strangers, and print what they learnt."""
    folder = Path(folder)
    name_hosts(folder)
    strange = folder / "strange"  # what a stranger has: the authority's certificate, and another's pair
    make_certificates(strange, CertificateRequest(leaves=1))
    for kind in ("crt", "key"):
        shutil.copy(strange / f"leaf-0.{kind}", strange / f"stranger.{kind}")
        (strange / f"stranger.{kind}").chmod(0o644)
    with Carried(folder) as carried:
        carried.carry_out(WAYS[name](folder))
        shutil.copy(folder / "certs" / "ca.crt", strange / "authority.crt")
        (strange / "authority.crt").chmod(0o644)
        strange.chmod(0o755)
        found = carried.doors()
        ports = sorted({port for (_, port) in found})
        asked = [
            ask_as(account, carried, ports, strange / "authority.crt", strange) for account in (NOBODY, 0)
        ]
        print(json.dumps({
            "way": name,
            "doors": [[*door, words] for door, words in sorted(found.items())],
            "strangers": asked[0], "own": asked[1],
            "keys": readable_keys(folder, NOBODY),
            "said": (folder / "run.out").read_text()[-2000:],
        }), flush=True)  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
