"""Build of the native step from its C++ sources: one library, with a set of kernels per instruction set.

    python -m fedge.native.build

The command builds it in a checkout whose sources have changed; installing Fedge builds it as well
(hatch_build.py). This needs a C++17 compiler with GCC's vector extensions: g++, clang++, or the one named in
CXX. Only the standard library is imported, because Fedge may not be installed yet.
"""

import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent / "src"
LIBRARY = Path(__file__).parent / "_step.so"
FLAGS = (
    "-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=off",  # no fused multiply-add unless written in the source
    "-Wall", "-Wextra", "-Wno-psabi",
)  # fmt: skip
KERNELS = {
    "x86_64": {
        "plain": (),
        "avx2": ("-mavx2", "-mfma", "-DFEDGE_AVX2"),
        "avx512": (
            "-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mprefer-vector-width=512",
            "-DFEDGE_AVX512",
        ),
    },
    "aarch64": {"plain": (), "neon": ("-DFEDGE_NEON",)},
}  # fmt: skip


AMX = (
    "-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mavx512bf16", "-mamx-tile", "-mamx-bf16",
    "-Wno-uninitialized", "-Wno-maybe-uninitialized",  # caused by the compiler's own header
)  # fmt: skip


class BuildError(RuntimeError):
    """Failure to build the library. One line."""


def sources_digest() -> str:
    """Digest of the sources and flags of a usable library: 16 hexadecimal digits."""
    digest = hashlib.sha256(repr((FLAGS, KERNELS, AMX)).encode())
    for path in sorted(SOURCES.iterdir()):
        if path.suffix in (".h", ".cpp"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def is_built(library: Path = LIBRARY) -> bool:
    """Whether a library was built from the current sources, and is unchanged."""
    if not library.is_file() or not digest_file(library).is_file():
        return False
    content = library.read_bytes()
    return sources_digest().encode() in content and written_digest(library) == library_digest(content)


def digest_file(library: Path) -> Path:
    """Path of a library's SHA-256 file, in the format of `sha256sum -c`."""
    return library.with_name(f"{library.name}.sha256")


def library_digest(content: bytes) -> str:
    """SHA-256 of a library's bytes, in hex."""
    return hashlib.sha256(content).hexdigest()


def written_digest(library: Path) -> str:
    """SHA-256 in the file beside a library; empty without one."""
    try:
        return digest_file(library).read_text(encoding="ascii")[:64]
    except (OSError, ValueError):
        return ""


def compiler() -> list[str]:
    """Command of the C++ compiler.

    Raises:
        BuildError: there is no compiler.
    """
    cxx = shlex.split(os.environ.get("CXX", ""))
    for command in [cxx] if cxx else [["g++"], ["clang++"], ["c++"]]:
        if shutil.which(command[0]):
            return command
    raise BuildError(
        f"there is no C++ compiler {cxx[0]} (CXX)" if cxx else "there is no C++ compiler (g++ or clang++)"
    )


def machine() -> str:
    """Processor family: x86_64, aarch64, or another family without its own kernels."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def build(
    library: Path = LIBRARY,
    words: Sequence[str] = (),
    flags: Sequence[str] = (),
    family: str = "",
    main: Path | None = None,
) -> Path:
    """Compile and link the library, and replace the old one atomically.

    Args:
        library: path of the result.
        words: compiler command; () for the one that `compiler` finds.
        flags: further flags, e.g. sanitizers, which come last.
        family: processor family; "" for this machine's.
        main: source with a main function, to build a program instead of the library.

    Raises:
        BuildError: there is no compiler, or it fails.
    """
    command = list(words) or compiler()
    kernels = KERNELS.get(family or machine(), {"plain": ()})
    with tempfile.TemporaryDirectory() as folder:
        jobs: list[tuple[Path, Path, Sequence[str]]] = [
            (
                Path(folder) / f"{source}.o",
                SOURCES / f"{source}.cpp",
                (f'-DFEDGE_SOURCES="{sources_digest()}"',),
            )
            for source in ("program", "session", "images", "normed", "recurrent", "interface", "rounded")
        ]
        if (family or machine()) == "x86_64":
            jobs.append((Path(folder) / "amx.o", SOURCES / "amx.cpp", AMX))
        jobs += [
            (Path(folder) / f"{name}.o", SOURCES / "kernels.cpp", (f"-DFEDGE_ISA={name}", *options))
            for name, options in kernels.items()
        ]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda job: _compile(command, job[0], job[1], [*job[2], *flags]), jobs))
        linked = Path(folder) / "linked.so"
        kind = ["-shared"] if main is None else ["-std=c++17", "-O2", str(main)]
        _run_compiler([*command, *kind, *flags, *(str(job[0]) for job in jobs), "-o", str(linked)])
        _replace_file(linked, library)
        if main is None:
            digest = Path(folder) / "digest"
            digest.write_text(f"{library_digest(linked.read_bytes())}  {library.name}\n", encoding="ascii")
            _replace_file(digest, digest_file(library))
    return library


def _replace_file(source: Path, target: Path) -> None:
    """Replace a file atomically by one writable only by its owner."""
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.copy(source, partial)
    partial.chmod(partial.stat().st_mode & ~(stat.S_IWGRP | stat.S_IWOTH))
    os.replace(partial, target)


def _compile(command: Sequence[str], compiled: Path, source: Path, options: Sequence[str]) -> None:
    """Compile one source; AMX's without its instructions, and hence empty, if the compiler lacks them."""
    arguments = [*command, *FLAGS, *options, "-c", str(source), "-o", str(compiled)]
    try:
        _run_compiler(arguments)
    except BuildError:
        if not set(AMX) <= set(options):
            raise
        _run_compiler([argument for argument in arguments if argument not in AMX])


def _run_compiler(command: Sequence[str]) -> None:
    """Run the compiler."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be started: {error.strerror or error}") from error
    if run.returncode:
        errors = [line for line in run.stderr.splitlines() if "error" in line] or run.stderr.splitlines()
        raise BuildError(f"{command[0]} failed: {errors[0] if errors else f'exit code {run.returncode}'}")


def main() -> int:
    """Build the library in this installation; the exit code is 1 on failure."""
    try:
        print(build())
    except BuildError as error:
        print(f"fedge: the native step cannot be built: {error}; training uses PyTorch", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
