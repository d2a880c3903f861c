"""The image of deploy/Dockerfile as a folder, for machines without a container daemon, and a run from it.

    python -m tools.image_root ROOT [--mirror URL] [--bind FOLDER] [--copy FILE] [--env NAME=VALUE] [--run]

Debian with its Python 3.11 replaces the image named by FROM (mmdebstrap, or debootstrap); all other steps of
the file are carried out in the folder, in order: COPY from this checkout, RUN in a chroot. `--bind` makes a
folder of this machine visible during RUN steps, `--copy` copies a file of this machine to the same path, e.g.
/etc/pip.conf, and `--env` is only for RUN steps: they determine the source of packages. Then `--run` starts a
cloud and leaf servers as deploy/compose.yml does, and a cloud with leaf servers of nodes, as the image's
user, with the image's environment and working directory; on the loopback interface, and with folders for runs
instead of volumes.

Everything is in its own mount namespace (`unshare`): no mount is visible outside or outlives it. Docker's own
layers, caps and networks are not reproduced. Needs root.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fedge.link.reach import free_ports

ROOT = Path(__file__).parents[1]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
_SUITE, _MIRROR = "bookworm", "http://deb.debian.org/debian"
_BASE_PACKAGES = "ca-certificates,python3,python3-pip,python3-venv"
_MAX_RUN_S = 900
_NAMESPACE_VARIABLE = "FEDGE_IMAGE_ROOT_APART"  # set in the namespace


class BuildError(RuntimeError):
    """Error of one line: a step cannot be carried out here."""


@dataclass
class Image:
    """Result of the steps of a Dockerfile, apart from files.

    Attributes:
        environment: environment of its processes.
        folder: working directory of its processes.
        user: user number; 0 is root.
        command: default command.
    """

    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: int = 0
    command: list[str] = field(default_factory=list)


def steps_of(text: str) -> list[tuple[str, str]]:
    """Steps of a Dockerfile: word and arguments; a line ending in a backslash continues.

    >>> steps_of("# a comment\\nFROM x\\nRUN a \\\\\\n && b\\n")
    [('FROM', 'x'), ('RUN', 'a  && b')]
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", "").splitlines()
    pairs = (line.strip().partition(" ") for line in joined if line.strip())
    return [(word.upper(), rest.strip()) for word, _, rest in pairs]


def build(
    root: Path, mirror: str, bound: Sequence[Path], copied: Sequence[Path], variables: Mapping[str, str]
) -> Image:
    """Carry out all steps in a new folder, RUN steps with additional variables.

    Raises:
        BuildError: a step fails.
    """
    image = Image()
    with ExitStack() as mounts:
        for instruction, arguments in steps_of(DOCKERFILE.read_text(encoding="utf-8")):
            print(f"{instruction} {arguments}", flush=True)
            if instruction == "FROM":
                _install_base(root, mirror, copied)
                mounts.enter_context(mounted(root, bound))
            elif instruction == "ENV":
                image.environment |= dict(pair.split("=", 1) for pair in shlex.split(arguments))
            elif instruction == "WORKDIR":
                image.folder = arguments
                _path_in(root, arguments).mkdir(parents=True, exist_ok=True)
            elif instruction == "COPY":
                _copy(root, image, shlex.split(arguments))
            elif instruction == "RUN":
                command = chroot_words(root, image, ["/bin/sh", "-c", arguments])
                _run_command(command, {**image.environment, **variables})
            elif instruction == "USER":
                image.user = int(arguments)
            elif instruction == "CMD":
                image.command = json.loads(arguments)
            else:
                raise BuildError(f"{DOCKERFILE.name} has a step {instruction}, which is not known here")
    return image


def _install_base(root: Path, mirror: str, copied: Sequence[Path]) -> None:
    """Debian with Python in /usr/local, as in the official Python images."""
    if root.exists() and any(root.iterdir()):
        raise BuildError(f"{root} must be empty, but is not; name another folder")
    tool = next((name for name in ("mmdebstrap", "debootstrap") if shutil.which(name)), None)
    if tool is None:
        raise BuildError("mmdebstrap or debootstrap must be there; apt-get install mmdebstrap")
    _run_command([tool, "--variant=minbase", f"--include={_BASE_PACKAGES}", _SUITE, str(root), mirror], {})
    for path in (Path("/etc/resolv.conf"), *copied):
        if path.is_file():
            _path_in(root, str(path)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, _path_in(root, str(path)))
    _run_command(chroot_words(root, Image(), ["python3", "-m", "venv", "/usr/local"]), {})


def _copy(root: Path, image: Image, arguments: Sequence[str]) -> None:
    """Copy files and folders of the project, as COPY does: of a folder, its contents."""
    *sources, target = arguments
    destination = _path_in(root, os.path.join(image.folder, target))
    for name in sources:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, destination, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            destination.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, destination / name)


def _path_in(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def chroot_words(root: Path, image: Image, words: Sequence[str]) -> list[str]:
    """Command line for running a command in the folder, as the image's user, in its working directory."""
    return [
        "chroot", f"--userspec={image.user}:{image.user}", str(root), "/usr/bin/env", "-C", image.folder,
        *words,
    ]  # fmt: skip


def environment_of(image: Image, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of the image's processes."""
    path = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
    home = "/root" if image.user == 0 else "/home/fedge"
    return {"PATH": path, "HOME": home, "LANG": "C.UTF-8", **image.environment, **(extra or {})}


@contextmanager
def mounted(root: Path, bound: Sequence[Path] = ()) -> Iterator[None]:
    """Mount /proc and /dev of this machine in the folder, and other folders read-only."""
    mounts = [("--types=proc", "proc", root / "proc"), ("--rbind", "/dev", root / "dev")]
    mounts += [("--bind", str(path), _path_in(root, str(path))) for path in bound]
    try:
        for option, source, target in mounts:
            target.mkdir(parents=True, exist_ok=True)
            _run_command(["mount", option, source, str(target)], {})
        yield
    finally:
        for _, _, target in reversed(mounts):
            subprocess.run(["umount", "--recursive", "--lazy", str(target)], capture_output=True, check=False)


def _run_command(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Carry out a command to its end.

    Raises:
        BuildError: the command fails; the message has its last words.
    """
    variables = environment_of(Image(), environment)
    result = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise BuildError(
            f"{shlex.join(command)[:200]}: exit code {result.returncode}: {' / '.join(lines[-3:])}"
        )


# --- a run from it ---------------------------------------------------------------------------------------


class Running:
    """Running commands of the image; as a context manager, ends them."""

    def __init__(self, root: Path, image: Image) -> None:
        """Start without commands."""
        self._root, self._image = root, image
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *words: str) -> "subprocess.Popen[bytes]":
        """Start a command; its output goes to /work/NAME.out in the folder."""
        with (self._root / "work" / f"{name}.out").open("wb") as log:
            command = chroot_words(self._root, self._image, words)
            process = subprocess.Popen(
                command, env=environment_of(self._image, {"SEED": "42"}), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def said(self, name: str) -> str:
        """Output of a command."""
        return (self._root / "work" / f"{name}.out").read_text(errors="replace")

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + 30
        while any(process.poll() is None for process in self._processes) and time.monotonic() < deadline:
            time.sleep(0.1)
        for process in self._processes:
            process.kill()
            process.wait()


def carry_out(root: Path, image: Image) -> None:
    """A run with leaf servers on threads, and a run with nodes.

    Raises:
        BuildError: one of the runs did not complete.
    """
    cloud, other, fleet = (f"127.0.0.1:{port}" for port in free_ports(3))
    options = ["-c", "num-server-rounds=3", "-c", "report=true"]
    with mounted(root), Running(root, image) as running:
        _run_to_end(running, "certs", "fedge", "certs", "certs", "--leaves", "3", "--nodes", "3")
        for leaf in range(3):
            arguments = ["fedge", "leaf", str(leaf), "--cloud", cloud, "--folder", f"/work/own/leaf-{leaf}"]
            running.start(f"leaf-{leaf}", *arguments)
        _run_to_end(running, "threads", "fedge", "run", "--leaves", cloud, "--clients", "9", *options)
        _run_to_end(running, "deal", "fedge", "deal", "dealt", "--clients", "3", "-c", "seed=42")
        arguments = ["--cloud", other, "--nodes", fleet, "--folder", "/work/own/of-nodes"]
        running.start("leaf-of-nodes", "fedge", "leaf", "0", *arguments)
        for node in range(3):
            arguments = ["fedge", "node", str(node), "--of", "3", "--superlink", fleet]
            running.start(f"node-{node}", *arguments, "--data-folder", f"dealt/client-{node}")
        owners = ["--owners", "-c", "hierarchy.num-servers=1 clients=3", *options]
        _run_to_end(running, "nodes", "fedge", "run", "--leaves", other, *owners)


def _run_to_end(running: Running, name: str, *words: str) -> None:
    """Wait for the end of a command that must succeed."""
    code = running.start(name, *words).wait(_MAX_RUN_S)
    output = running.said(name)
    print(f"$ {shlex.join(words)}\n{output.strip()[-400:]}\nexit code {code}", flush=True)
    if code:
        raise BuildError(f"{shlex.join(words)}: exit code {code}")


def main(words: Sequence[str] | None = None) -> int:
    """Command line; 1 if a step failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=Path, help="folder of the image, empty so far")
    parser.add_argument("--mirror", default=_MIRROR, help="of Debian")
    parser.add_argument("--bind", type=Path, action="append", default=[], help="folder to show meanwhile")
    parser.add_argument("--copy", type=Path, action="append", default=[], help="file to put in there")
    parser.add_argument("--env", action="append", default=[], help="variable of RUN steps, as PIP_RETRIES=0")
    parser.add_argument("--run", action="store_true", help="run from it")
    options = parser.parse_args(words)
    if _NAMESPACE_VARIABLE not in os.environ:
        command = [sys.executable, "-m", "tools.image_root", *(sys.argv[1:] if words is None else words)]
        os.environ[_NAMESPACE_VARIABLE] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", *command])
    try:
        variables = dict(pair.split("=", 1) for pair in options.env)
        image = build(options.root.absolute(), options.mirror, options.bind, options.copy, variables)
        if options.run:
            carry_out(options.root.absolute(), image)
    except BuildError as error:
        print(f"image_root: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
