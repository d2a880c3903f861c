"""The house: rooms with a surface, floors that hold, imports that stay light (docs/architecture.md)."""

import ast
import importlib
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from pkgutil import iter_modules

import pytest
import yaml

import fedge
from fedge.config.registers.parts import OF_THE_TASK, REGISTERS
from tools import rooms

ROOT = Path(__file__).parents[1]
HEAVY = {"torch", "flwr", "ray", "polars", "matplotlib", "numpy"}
PACKAGES = sorted(
    ".".join(file.parent.relative_to(ROOT).parts)
    for top in ("fedge", "hhar")
    for file in (ROOT / top).rglob("__init__.py")
)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_what_it_is(package: str) -> None:
    """One line that names it, and what it may import."""
    words = importlib.import_module(package).__doc__
    assert words is not None
    assert 20 < len(words.splitlines()[0]) <= 110


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_introduces_modules_that_are_there(package: str) -> None:
    """Plain names in backquotes: its modules and names, and modules and packages around it."""
    module = importlib.import_module(package)
    introduced = set(re.findall(r"(?<!`)`(\w+)`(?!`)", module.__doc__ or ""))
    folder = ROOT.joinpath(*package.split("."))
    around = [folder, *(parent for parent in folder.parents if parent.is_relative_to(ROOT))]
    there = {path.stem for place in around for path in place.iterdir() if path.suffix in ("", ".py")}
    assert introduced <= there | set(getattr(module, "__all__", ()))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there(package: str) -> None:
    """Loaded on first use, and never in the place of a module of the same name."""
    room = importlib.import_module(package)
    names = list(getattr(room, "__all__", ()))
    for name in names:
        assert getattr(room, name) is not None
    assert not set(names) & {module.name for module in iter_modules(room.__path__)}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Steps", ""),  # of no package's list
        ("Budget", ": from fedge.callbacks import Budget"),
        ("load_windows", ": from hhar import load_windows"),
    ],
)
def test_a_name_that_fedge_does_not_have_leads_to_its_package(name: str, hint: str) -> None:
    """Names that users' code is made of are Fedge's own (tests/test_site.py); others are their package's."""
    with pytest.raises(AttributeError) as raised:
        getattr(fedge, name)
    assert str(raised.value) == f"fedge has no {name}{hint}"


def test_a_room_says_truly_what_it_may_import() -> None:
    """The end of its docstring names the floor under it, and nothing that stands beside or above it."""
    floors = rooms.floors()
    for number, floor in enumerate(floors):
        under = set(floors[number + 1]) if number + 1 < len(floors) else set()
        below = {room for lower in floors[number + 1 :] for room in lower}
        for room in floor:
            if (ROOT / "fedge" / room / "__init__.py").exists():
                words = importlib.import_module(f"fedge.{room}").__doc__ or ""
                end = words.rstrip().split("\n\n")[-1]
                assert end.startswith("Imports"), f"fedge.{room}"
                assert under <= set(re.findall(r"`(\w+)`", end)) <= below, f"fedge.{room} says: {end}"


@pytest.mark.parametrize("module", ["fedge", "fedge.cli", "hhar", "hhar.cli"])
def test_commands_load_nothing_heavy(module: str) -> None:
    """`fedge --help` and a refused run do not wait for torch."""
    heavy = HEAVY if module.startswith("fedge") else HEAVY - {"polars", "numpy"} | {"fedge"}
    code = f"import sys, {module}; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_run_in_rounds_loads_only_what_it_needs() -> None:
    """Neither the virtual clock, nor links to leaf servers, nor what other methods of clustering need."""
    code = "import sys, fedge.launch.simulate, fedge.clustering.methods.hierarchical; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"fedge.rounds", "fedge.clustering"} <= loaded
    assert not loaded & {"fedge.devices", "fedge.edge", "fedge.link.gate", "scipy"}


FORBIDDEN = (  # upwards, sideways, from the data set into the simulator
    (
        "fedge/config/registers/option.py",
        "import fedge.run.run",
        "fedge.config.registers.option -> fedge.run.run",
    ),
    ("fedge/training/scaffold.py", "from fedge.data import split", "fedge.training.scaffold -> fedge.data"),
    ("hhar/npz.py", "import fedge.seeding", "hhar.npz -> fedge.seeding"),
)


@pytest.mark.parametrize("planted", [(), FORBIDDEN], ids=["none", "each"])
def test_a_forbidden_import_breaks_a_contract(
    planted: Sequence[tuple[str, str, str]], tmp_path: Path
) -> None:
    """Each of those that are planted is named; without one all contracts are kept."""
    for top in ("fedge", "hhar"):
        shutil.copytree(ROOT / top, tmp_path / top, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for file, line, _ in planted:
        with (tmp_path / file).open("a", encoding="utf-8") as source:
            source.write(f"\n{line}\n")
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode == 0) == (not planted), done.stdout
    for _, _, arrow in planted:
        assert arrow in done.stdout


def test_no_class_has_more_than_twenty_methods() -> None:
    """Properties apart: what holds more than that is several things."""
    for file in (ROOT / "fedge").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                methods = [m for m in node.body if isinstance(m, ast.FunctionDef) and not m.decorator_list]
                assert len(methods) <= 20, f"{node.name} in {file}"


def test_no_folder_has_more_than_eighteen_files() -> None:
    """Python files, tests and benchmarks too: what holds more has rooms in it that want a name."""
    tops = ("benchmarks", "examples", "fedge", "hhar", "studies", "tests", "tools")
    counts = Counter(file.parent for top in tops for file in (ROOT / top).rglob("*.py"))
    assert {str(folder): count for folder, count in counts.items() if count > 18} == {}


# the names of a protocol: each file gives its own under the same name, found by it
_SHARED_NAMES = {
    "main": "entry points of commands and processes",
    "add_commands": "commands of a room, added to the parser",
    "read": "the files of a data set, loaded by the set's name",
    "download": "of all data sets, and of HHAR alone, whose package imports nothing of Fedge",
    "unpack": "of all data sets, and of HHAR alone",
    "prepare": "of all data sets, and of HHAR alone",
}


def _owners_of_names(tops: Iterable[Path]) -> dict[str, set[str]]:
    """Public name of a module-level class or function → modules that define it."""
    owners: dict[str, set[str]] = defaultdict(set)
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    files = [(folder, file) for folder in tops for file in folder.rglob("*.py")]
    for folder, file in files:
        module = ".".join(file.relative_to(folder.parent).with_suffix("").parts)
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, kinds) and not node.name.startswith("_"):
                owners[node.name].add(module)
    return owners


def _repeated_names(tops: Iterable[Path]) -> dict[str, set[str]]:
    """Names that several modules define, apart from protocols and parts known by their word in a register."""
    registered = {entry.code for register in REGISTERS for entry in register}
    return {
        name: modules
        for name, modules in _owners_of_names(tops).items()
        if len(modules) > 1
        and name not in _SHARED_NAMES
        and not all(f"{module}:{name}" in registered for module in modules)
    }


def test_public_names_are_unique() -> None:
    """A name says what it is without its module; a part's own word in its register may be another's, too."""
    assert _repeated_names([ROOT / "fedge", ROOT / "hhar"]) == {}


def test_shared_names_are_shared() -> None:
    owners = _owners_of_names([ROOT / "fedge", ROOT / "hhar"])
    assert [name for name in _SHARED_NAMES if len(owners[name]) < 2] == []


def test_a_repeated_name_is_seen(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("def found(): ...\ndef main(): ...\ndef _own(): ...\nclass Only: ...\n")
    (tmp_path / "other.py").write_text("class found: ...\ndef main(): ...\ndef _own(): ...\n")
    top = tmp_path.name
    assert _repeated_names([tmp_path]) == {"found": {f"{top}.one", f"{top}.other"}}


def _unused(sources: Iterable[Path], others: Iterable[Path]) -> list[str]:
    """Public functions of sources that no file names beside their own code, not even as a part's place."""
    texts = {file: file.read_text(encoding="utf-8") for file in sources}
    further = " ".join(file.read_text(encoding="utf-8") for file in others)
    words = Counter(re.findall(r"\w+", " ".join([*texts.values(), further])))
    return [
        f"{file.stem}.{node.name}"
        for file, text in texts.items()
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and not node.decorator_list  # which registers it
        and words[node.name] == re.findall(r"\w+", ast.get_source_segment(text, node) or "").count(node.name)
    ]


def test_every_function_is_used() -> None:
    """By more than its tests: what nothing calls is no part of Fedge."""
    sources = [file for top in ("fedge", "hhar") for file in (ROOT / top).rglob("*.py")]
    kinds = ("*.py", "*.md", "*.ipynb", "*.toml")
    tops = ("benchmarks", "studies", "tools", "docs", "examples", "configs")
    others = [file for top in tops for kind in kinds for file in (ROOT / top).rglob(kind)]
    assert _unused(sources, [*others, ROOT / "pyproject.toml", ROOT / "hatch_build.py"]) == []


def test_an_unused_function_is_seen(tmp_path: Path) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.md"
    one.write_text("def known(): ...\ndef named(): ...\ndef lost(): return lost()\nknown()\n")
    other.write_text("see `one:named`")
    assert _unused([one], [other]) == ["one.lost"]


def _imports_between_children(package: Path) -> dict[str, set[str]]:
    """Child of a package → those of its children that it imports: when loaded, when used, or for types."""
    prefix = ".".join(package.relative_to(ROOT).parts)
    found: dict[str, set[str]] = {}
    for file in package.rglob("*.py"):
        child = file.relative_to(package).parts[0].removesuffix(".py")
        inside = [name for name in _imported(file) if name.startswith(f"{prefix}.")]
        found.setdefault(child, set()).update(
            name.removeprefix(f"{prefix}.").partition(".")[0] for name in inside
        )
    return {child: others - {child} for child, others in found.items()}


def _imported(file: Path) -> set[str]:
    """Modules and names that a file imports: when loaded, when used, or for types."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {f"{node.module}"}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def _circle(files: Mapping[str, Path]) -> list[str]:
    """Modules that import each other, in order; empty for none."""
    order = TopologicalSorter(
        {name: (_imported(file) & files.keys()) - {name} for name, file in files.items()}
    )
    try:
        order.prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Not for types, either: whoever reads one of two such modules must read both."""
    files = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts): file
        for top in ("fedge", "hhar", "studies")
        for file in (ROOT / top).rglob("*.py")
        if file.name != "__init__.py"
    }
    assert _circle(files) == []


def test_a_circle_is_seen(tmp_path: Path) -> None:
    """An import for types alone, and one inside a function, are imports."""
    one, other, third = (tmp_path / f"{name}.py" for name in ("one", "other", "third"))
    one.write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from other import Name\n")
    other.write_text("def late():\n    import third\n")
    third.write_text("from one import Name\n")
    assert set(_circle({"one": one, "other": other, "third": third})) == {"one", "other", "third"}
    third.write_text("import ast\n")
    assert _circle({"one": one, "other": other, "third": third}) == []


@pytest.mark.parametrize("package", [name for name in PACKAGES if name.count(".") == 1])
def test_inner_rooms_import_one_way(package: str) -> None:
    """Neither from each other in a circle, nor from modules beside them that import them."""
    place = ROOT.joinpath(*package.split("."))
    imports = _imports_between_children(place)
    for inner in sorted(path.parent.name for path in place.glob("*/__init__.py")):
        reached, new = set(), imports.get(inner, set())
        while new:
            reached |= new
            new = {further for child in new for further in imports.get(child, ())} - reached
        assert inner not in reached, f"{package}.{inner} imports what imports it: {sorted(reached)}"


def test_the_page_of_rooms_is_the_code() -> None:
    """The page holds the output of `python -m tools.rooms`."""
    page = rooms.PAGE.read_text(encoding="utf-8")
    assert rooms.written(page) == page, "run python -m tools.rooms"


def test_every_page_has_a_place_on_the_site() -> None:
    """`make docs` would refuse a page without one, and a place without a page."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    placed = set(re.findall(r"[\w/.-]+\.md", str(site["nav"])))
    docs = ROOT / "docs"
    pages = {file.relative_to(docs).as_posix() for file in docs.rglob("*.md")}
    pages |= {file.relative_to(docs).with_suffix(".md").as_posix() for file in docs.rglob("*.ipynb")}
    made = {"index.md", "contributing.md", "security.md", "changelog.md", "api/index.md"}
    assert pages - placed == set(), "give these pages of docs/ a place in `nav` of mkdocs.yml"
    assert placed - pages == made, "`nav` of mkdocs.yml names pages that docs/ does not have"


def test_commits_are_checked_as_make_checks() -> None:
    """The hooks of .pre-commit-config.yaml are the recipes of `make check` and `make types`."""
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipes = [
        re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE) for target in ("check", "types")
    ]
    made = "".join(recipe[1] for recipe in recipes if recipe).replace("$(BIN)", ".venv/bin").split("\n")
    assert [hook["entry"] for hook in repository["hooks"]] == [line.strip() for line in made if line.strip()]
    assert repository["repo"] == "local"
    assert all(hook["always_run"] and hook["language"] == "system" for hook in repository["hooks"])


def test_the_workflow_runs_what_continuous_integration_runs() -> None:
    """One command, with PyTorch without CUDA."""
    flow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    (job,) = flow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == ["bash .ci/run"]
    assert job["steps"][-1]["env"] == {"TORCH": "cpu"}


def test_every_cited_contract_is_defined() -> None:
    """Sources and tests cite contracts by number; docs/architecture.md says what they are."""
    defined = set(re.findall(r"^\*\*C(\d+) ", rooms.PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert defined == {str(number) for number in range(1, 16)}
    for top in ("fedge", "hhar", "studies", "tests"):
        for file in (ROOT / top).rglob("*.py"):
            for number in re.findall(
                r"\bC(\d+)\b", " ".join(re.findall(r"ontracts?[^.\n]*", file.read_text(encoding="utf-8")))
            ):
                assert number in defined, f"{file} cites contract C{number}"


# Modules without a test module of their own, and what tests them instead
ELSEWHERE = (
    {
        "fedge/launch/nodes/node_folder.py": "fedge/process/endings/test_owner.py",
        # entry points and what only a whole run shows
        "fedge/devices/world.py": "fedge/devices/test_procedure.py",
        "fedge/client/process_team.py": "runs/engines/test_processes.py",
        "fedge/training/networks/frozen.py": "runs/methods/test_exchange.py",
        "fedge/training/networks/start.py": "runs/methods/test_exchange.py",
        "fedge/run/preparation/starts.py": "runs/methods/test_exchange.py",
        "fedge/server_app.py": "runs/engines/test_flower.py",
        # words of the command line, called as a user calls them
        "fedge/commands/arguments.py": "fedge/test_cli.py",
        "fedge/commands/measure.py": "fedge/test_cli.py",
        "fedge/commands/compare.py": "fedge/sweep/test_comparing.py",
        "fedge/commands/projects.py": "fedge/test_cli.py",
        "fedge/commands/run.py": "fedge/test_cli.py",
        "fedge/run/model_card.py": "fedge/inference/test_card.py",
        "fedge/callbacks/callback.py": "fedge/callbacks/test_calls.py",
        "fedge/rounds/hooks.py": "fedge/callbacks/test_calls.py",
        "fedge/client/guarded_app.py": "runs/faults/test_faults.py",
        "fedge/engine/flower_process.py": "runs/stops/test_exits.py",
        "fedge/launch/flower_runs/flower.py": "runs/stops/test_exits.py",
        "fedge/process/capture.py": "fedge/profile/test_command.py",
        "fedge/run/ending.py": "runs/stops/test_exits.py",
        "fedge/run/preparation/resume.py": "runs/stops/test_resumption.py",
        "fedge/sweep/pool.py": "fedge/sweep/test_command.py",
        # parts of one thing that is tested whole
        "fedge/parallel/batch_norm.py": "fedge/parallel/test_team.py",
        "fedge/parallel/member.py": "fedge/parallel/test_team.py",
        "fedge/parallel/sgd.py": "fedge/parallel/test_team.py",
        "fedge/native/operations.py": "fedge/native/test_trace.py",
        "fedge/clustering/likeness/evidence.py": "fedge/clustering/test_signals.py",
        "fedge/records/tables/global_table.py": "fedge/records/test_recorder.py",
        "fedge/records/tables/member_tables.py": "fedge/records/test_recorder.py",
        "fedge/records/tables/score_words.py": "fedge/records/test_recorder.py",
        "fedge/datasets/cards.py": "fedge/datasets/test_catalog.py",
        "fedge/datasets/columns.py": "fedge/datasets/test_frames.py",
        "fedge/datasets/tables.py": "fedge/datasets/test_motionsense.py",
        "fedge/exchange/engine.py": "fedge/engine/test_flower_engine.py",
        "fedge/profile/allocators.py": "fedge/profile/test_command.py",
        "fedge/profile/page.py": "fedge/profile/test_command.py",
        "fedge/profile/result.py": "fedge/profile/test_command.py",
        "fedge/profile/watch.py": "fedge/profile/test_command.py",
        "fedge/trackers/to_mlflow.py": "fedge/trackers/test_tracking.py",
        "fedge/trackers/to_tensorboard.py": "fedge/trackers/test_tracking.py",
        "fedge/trackers/to_wandb.py": "fedge/trackers/test_tracking.py",
        "fedge/trackers/tracker.py": "fedge/trackers/test_tracking.py",
        # a client's algorithm, as methods and whole runs show it
        "fedge/algorithm/algorithm.py": "fedge/methods/test_witness.py",
        "fedge/algorithm/descent.py": "fedge/methods/test_witness.py",
        "fedge/algorithm/leaf_part.py": "fedge/methods/test_witness.py",
        "fedge/algorithm/configured.py": "runs/methods/test_algorithms.py",
        "fedge/algorithm/client_round.py": "runs/methods/test_algorithms.py",
        "fedge/exchange/algorithm.py": "runs/methods/test_algorithms.py",
        "fedge/clustering/cloud_part.py": "runs/methods/test_families.py",
        "fedge/cloud/families.py": "fedge/methods/test_soft_family.py",
        "fedge/clustering/memberships/soft_moves.py": "fedge/methods/test_soft_family.py",
        "fedge/leaf/spread.py": "fedge/methods/test_soft_family.py",
        "fedge/leaf/algorithm.py": "runs/methods/test_algorithms.py",
        "fedge/run/preparation/algorithms.py": "runs/methods/test_algorithms.py",
        "fedge/records/tables/model_tables.py": "fedge/records/tables/test_catalog.py",
        # pages, looked at as pages
        "fedge/report/report_hook.py": "fedge/report/test_run_page.py",
        "fedge/report/commands.py": "fedge/report/test_run_page.py",
        "fedge/report/listing.py": "fedge/report/test_run_page.py",
        "fedge/report/html/page.py": "fedge/report/test_run_page.py",
        "fedge/report/html/svg.py": "fedge/report/test_run_page.py",
        "fedge/report/comparison/finals.py": "fedge/report/comparison/test_page.py",
        "fedge/report/comparison/groups.py": "fedge/report/comparison/test_page.py",
        "fedge/report/comparison/metrics.py": "fedge/report/comparison/test_page.py",
        "fedge/report/comparison/formats.py": "fedge/report/comparison/test_page.py",
        "fedge/report/html/points.py": "fedge/report/comparison/test_page.py",
        "fedge/report/comparison/targets.py": "fedge/report/comparison/test_yardsticks.py",
        "fedge/report/comparison/sweep_page.py": "fedge/sweep/test_command.py",
        "studies/draws_part.py": "studies/test_page.py",
        "studies/figures.py": "studies/test_page.py",
        "studies/measures.py": "studies/test_page.py",
        "studies/numbers.py": "studies/test_page.py",
        "studies/result_tables.py": "studies/test_page.py",
        # the data set: generated, and read back
        "hhar/errors.py": "hhar/test_damaged_files.py",
        "hhar/raw/prepare.py": "hhar/raw/test_parse.py",
        "hhar/synthetic/devices.py": "hhar/synthetic/test_generate.py",
        "hhar/synthetic/motion.py": "hhar/synthetic/test_generate.py",
        "hhar/synthetic/raw_csv.py": "hhar/synthetic/test_generate.py",
        "hhar/windows/recordings.py": "hhar/windows/test_cut.py",
        # parts of local training, which `train` and `evaluate` put together
        "fedge/training/networks/module_state.py": "fedge/training/test_local.py",
        "fedge/training/sgd.py": "fedge/training/test_local.py",
        # parts of a deal, which `partition` puts together
        "fedge/data/owners.py": "fedge/data/test_partition.py",
        "fedge/data/shares.py": "fedge/data/test_partition.py",
        "fedge/data/window_split.py": "fedge/data/test_partition.py",
        # tables, as whole runs write them
        "fedge/records/tables/server_table.py": "runs/hierarchy/test_trees.py",
        "fedge/leaf/server.py": "fedge/cloud/test_region.py",
        "fedge/compression/compressor.py": "fedge/compression/test_uplink.py",
        "fedge/records/tables/timing_tables.py": "fedge/records/tables/test_catalog.py",
        "fedge/records/tables/device_tables.py": "fedge/records/tables/test_catalog.py",
        "fedge/records/device_recorder.py": "fedge/run/test_asynchronous.py",
        # declarations without anything that can be called
        "fedge/config/registers/choices.py": "fedge/config/test_flat.py",
        "fedge/config/registers/groupings.py": "fedge/config/registers/test_parts.py",
        "fedge/config/registers/methods.py": "fedge/config/registers/test_parts.py",
        "fedge/config/registers/traits.py": "fedge/config/registers/test_parts.py",
        "fedge/leaf/drift.py": "fedge/cloud/test_control.py",
        # options are read as a whole
        "fedge/config/config.py": "fedge/config/test_flat.py",
        "fedge/config/run_options.py": "fedge/config/test_flat.py",
        # data between modules, whose tests make them
        "fedge/cloud/method_memory.py": "fedge/cloud/test_memory.py",
        "fedge/cloud/probe.py": "fedge/cloud/test_step.py",
        "fedge/cloud/settings.py": "fedge/cloud/test_step.py",
        "fedge/console/size.py": "fedge/console/test_terminal.py",
        "fedge/devices/servers/arrivals.py": "fedge/devices/servers/test_rules.py",
        "fedge/devices/state.py": "fedge/devices/test_procedure.py",
        "fedge/devices/work/routes.py": "fedge/devices/test_transit.py",
        "fedge/edge/order_execution.py": "fedge/edge/test_host.py",
    }
    | {
        f"fedge/methods/{file.name}": "runs/methods/test_algorithms.py"
        for file in (ROOT / "fedge" / "methods").glob("[a-z]*.py")
        if not (ROOT / "tests" / "fedge" / "methods" / f"test_{file.name}").exists()
    }
    | {
        f"fedge/config/sections/{file.name}": "fedge/config/test_flat.py"
        for file in (ROOT / "fedge" / "config" / "sections").glob("[a-z]*.py")
    }
    | {
        f"fedge/report/sections/{file.name}": "fedge/report/test_run_page.py"
        for file in (ROOT / "fedge" / "report" / "sections").glob("[a-z]*.py")
        if not (ROOT / "tests" / "fedge" / "report" / "sections" / f"test_{file.name}").exists()
    }
)


def test_every_module_has_its_tests() -> None:
    """`fedge/ROOM/MODULE.py` has `tests/fedge/ROOM/test_MODULE.py`, or stands in `ELSEWHERE`, never both."""
    for top in ("fedge", "hhar", "studies"):
        for file in (ROOT / top).rglob("[a-z]*.py"):
            module = file.relative_to(ROOT)
            own = Path("tests") / module.parent / f"test_{module.name}"
            here, elsewhere = (ROOT / own).exists(), module.as_posix() in ELSEWHERE
            assert here or elsewhere, f"{module} has no tests: write {own}"
            assert not (here and elsewhere), f"{module} has {own}: take it out of ELSEWHERE"


@pytest.mark.parametrize("module", ELSEWHERE)
def test_what_is_tested_elsewhere_is_there(module: str) -> None:
    """Both the module and the test that is named for it."""
    assert (ROOT / module).exists()
    assert (ROOT / "tests" / ELSEWHERE[module]).exists()


def test_tests_have_the_same_names_in_every_process(request):
    """Side by side, processes compare what they collected; an address in a name differs in each."""
    assert [item.nodeid for item in request.session.items if " at 0x" in item.nodeid] == []


_NAMING = {
    *["method", "signal", "rule", "strategy", "kind", "algorithm", "preset", "selection", "availability"]
}
# what single strategies of Flower's are given
_OF_RULES = {"fedge/leaf/strategies/quorum.py", "fedge/leaf/strategies/rules.py"}


def _names_asked_for(file: Path) -> list[str]:
    """Comparisons of an option that names a part with the name of a part."""
    known = {entry.name for register in REGISTERS for entry in register} - {OF_THE_TASK, "off", "none"}
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            asked = any(isinstance(side, ast.Attribute) and side.attr in _NAMING for side in sides)
            named = {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)} & known
            found += [f"{file.name}:{node.lineno} {name}" for name in sorted(named) if asked]
    return found


def test_nothing_asks_for_a_part_by_its_name() -> None:
    """A part of a user's is treated as Fedge's own of the same traits: nobody knows it by name."""
    everywhere = {file.relative_to(ROOT).as_posix() for file in (ROOT / "fedge").rglob("*.py")}
    assert [line for file in sorted(everywhere - _OF_RULES) for line in _names_asked_for(ROOT / file)] == []


def test_no_error_of_the_disk_is_told_as_none() -> None:
    """An OSError without a number, such as NumPy's on a full disk, has no `strerror`."""
    files = [file for package in ("fedge", "hhar") for file in (ROOT / package).rglob("*.py")]
    guarded = {"fedge/report/commands.py"}  # asks before
    found = {
        file.relative_to(ROOT).as_posix()
        for file in files
        if ".strerror}" in file.read_text(encoding="utf-8")
    }
    assert found <= guarded


def _strict_readers(file: Path) -> list[str]:
    """Lines of a module that start a program and fail at bytes of its output that are not UTF-8."""
    calls = [node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.Call)]
    named = [(call.lineno, {keyword.arg for keyword in call.keywords}) for call in calls]
    return [f"{file.name}:{line}" for line, words in named if "text" in words and "errors" not in words]


def test_no_programs_output_can_fail_its_reader() -> None:
    """Names and messages of other programs come in any encoding, as from a scheduler in another language."""
    modules = [file for file in (ROOT / "fedge").rglob("*.py") if "subprocess" in file.read_text("utf-8")]
    assert len(modules) > 10
    assert [line for file in modules for line in _strict_readers(file)] == []


_COMMAND = re.compile(r"\b(?:(?:fedge|hhar|flwr) (?!must\b)[a-z]+|chmod \S+|chown|rm|sbatch)(?: [a-z.]+)? $")


def _unquoted_paths(file: Path) -> list[str]:
    """Lines of a module with a command in an f-string and a value that no shell quoting was applied to."""
    found = []
    for node in ast.walk(ast.parse(file.read_bytes())):
        for text, value in pairwise(node.values if isinstance(node, ast.JoinedStr) else []):
            is_command = isinstance(text, ast.Constant) and _COMMAND.search(str(text.value))
            if is_command and isinstance(value, ast.FormattedValue):
                found.append(f"{file.name}:{value.lineno} {ast.unparse(value.value)}")
    names = (" name", " data_card.name", " shlex.")  # names need no quotes
    return [line for line in found if not any(name in line for name in names)]


def test_paths_in_commands_to_copy_are_quoted() -> None:
    """A folder with a blank in its name: a command that a message tells works as it stands."""
    files = [file for package in ("fedge", "hhar") for file in (ROOT / package).rglob("*.py")]
    assert [line for file in sorted(files) for line in _unquoted_paths(file)] == []


def test_an_unquoted_path_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "tells.py"
    file.write_text(
        'a = f"x; resume with: fedge resume {folder}"\nb = f"run chmod go-w {shlex.quote(path)}"\n'
    )
    assert _unquoted_paths(file) == ["tells.py:1 folder"]


def test_a_comparison_with_a_name_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "asks.py"
    file.write_text('asked = cluster.method in ("ifca", "mine") or name == "rotate"\n')
    assert _names_asked_for(file) == ["asks.py:1 ifca"]
