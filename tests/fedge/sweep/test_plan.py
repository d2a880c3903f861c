"""Sweep files: the runs they stand for, which option wins, and what is refused in one line."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_names import odd_names

from fedge.config.config import Config
from fedge.config.registers.option import ConfigError
from fedge.report.comparison.finals import CSV_COLUMNS
from fedge.sweep.plan import COLUMNS, read_sweep

ROOT = Path(__file__).parents[3]


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Function that reads a sweep file of the given text; files named in it lie beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text("cluster.tau = 0.1\nhierarchy.num-servers = 2\n")
    (tmp_path / "b.toml").write_text("gate.enabled = false\nhierarchy.num-servers = 2\n")

    def read(text, head="[sweep]\nseeds = [1]\n"):
        (tmp_path / "study.toml").write_text(head + text)
        return read_sweep(Path("study.toml"))

    return read


# --- what runs there are ------------------------------------------------------------------------------


def test_every_combination_with_every_seed_by_hand(read):
    """2 variants × 2 learning rates × 2 seeds = 8 runs; all with the first seed come first."""
    sweep = read(
        """
        [[variants]]
        config = "a.toml"
        [[variants]]
        name = "gateless"
        config = "b.toml"
        [grid]
        train.lr = [0.01, 0.1]
        """,
        head="[sweep]\nseeds = [5, 3]\nsupernodes = 4\n",
    )
    labels = ["a-lr=0.01", "a-lr=0.1", "gateless-lr=0.01", "gateless-lr=0.1"]
    assert [run.name for run in sweep.runs] == [f"{label}-seed{seed}" for seed in (5, 3) for label in labels]
    assert [run.label for run in sweep.runs] == labels * 2
    assert {run.folder.parent for run in sweep.runs} == {Path("runs/study")}
    last = sweep.runs[-1]
    assert last.point == {"variants": "gateless", "grid": "lr=0.1"}
    assert (last.seed, last.supernodes, last.config.seed) == (3, 4, 3)
    assert (last.config.train.lr, last.config.gate.enabled, last.config.cluster.tau) == (0.1, False, 0.7)
    assert (last.config.runs_dir, last.config.run_name) == ("runs/study", "gateless-lr=0.1-seed3")


def test_a_sweep_over_seeds_alone(read):
    sweep = read("", head='[sweep]\nseeds = [1, 2]\nname = "alone"\nruns-dir = "elsewhere"\n')
    assert [str(run.folder) for run in sweep.runs] == [
        "elsewhere/alone/alone-seed1",
        "elsewhere/alone/alone-seed2",
    ]
    assert sweep.runs[0].supernodes == 0


def test_a_run_of_a_sweep_has_no_report_and_few_checkpoints_unless_the_file_says_so(read):
    config = read("").runs[0].config
    assert (config.report, config.checkpoint.every, config.checkpoint.keep) == (False, 10, 1)
    config = read("[base]\nreport = true\ncheckpoint.every = 1\n").runs[0].config
    assert (config.report, config.checkpoint.every) == (True, 1)


def test_a_configuration_that_comes_with_fedge_gives_its_name(read):
    sweep = read('[[v]]\nconfig = "fedge:hierfl"\n[[v]]\nconfig = "fedge:baselines/ifca"\n')
    assert [run.folder.name for run in sweep.runs] == ["hierfl-seed1", "ifca-seed1"]
    assert sweep.runs[1].config.cluster.method == "ifca"


def test_what_the_sweep_file_says_wins_over_named_files_and_later_over_earlier(read):
    """Base says three leaves, the files two: three. Both axes set tau: the later axis wins. All is said."""
    sweep = read(
        """
        [base]
        hierarchy.num-servers = 3
        [[variants]]
        config = "a.toml"
        cluster.tau = 0.2
        [[variants]]
        config = "b.toml"
        [[scenarios]]
        name = "s"
        cluster.tau = 0.3
        """
    )
    for run in sweep.runs:
        assert (run.config.hierarchy.num_servers, run.config.cluster.tau) == (3, 0.3)
    assert sweep.notes == [
        "hierarchy.num-servers = 3 overrides 2 of a.toml",
        "hierarchy.num-servers = 3 overrides 2 of b.toml",
    ]


def test_an_entry_may_say_how_many_clients_there_are(read):
    sweep = read(
        """
        [[datasets]]
        name = "small"
        supernodes = 3
        [[datasets]]
        name = "usual"
        """
    )
    assert [run.supernodes for run in sweep.runs] == [3, 0]


def test_the_last_number_of_clients_counts(read):
    """Later entries override earlier ones, by whichever of the two names; of one entry, supernodes."""
    grid = "[base]\nsupernodes = 9\n[grid]\nclients = [3, 6, 'auto']\n"
    entries = (
        "[[a]]\nname = 'a'\n[[a]]\nname = 'b'\nsupernodes = 4\n[[a]]\nname = 'c'\nclients = 5\nsupernodes = 7"
    )
    head = "[sweep]\nseeds = [1]\nsupernodes = 2\n"
    runs = read(grid + entries, head).runs
    assert [run.supernodes for run in runs] == [3, 4, 7, 6, 4, 7, 9, 4, 7]
    assert [run.config.clients for run in runs] == [run.supernodes for run in runs]
    assert read("[base]\nclients = 3\n", head).runs[0].supernodes == 3
    assert [run.supernodes for run in read("[grid]\nclients = ['auto', 4]", head).runs] == [2, 4]


def test_values_that_read_alike_have_names_of_their_own(read):
    """Paths of one last name, code of one package, trees of the same numbers; names of the first stay."""
    lists = {
        "hierarchy.tree": (["((3,1),(2))", "((3),(1,2))"], ["tree=_3_1_2_", "tree=_3_1_2_.2"]),
        "data.path": (["a/x.npz", "b/x.npz", "x.2", "x"], ["path=x", "path=x.2", "path=x.3", "path=x.4"]),
        "callbacks": (["my.one:Watch", "my.other:Watch"], ["callbacks=my", "callbacks=my.2"]),
    }
    for key, (values, names) in lists.items():
        runs = read(f"[grid]\n{key} = {json.dumps(values)}").runs
        assert [run.label for run in runs] == names
        assert [run.run_config[key] for run in runs] == values


def test_numbers_in_a_text_are_named_whole(read):
    """A point in them ends no file's name: 0.75 was called 0.2, the second of two that read 0."""
    values = ["0.5", "0.75", "2, 0.5, all", "1: all; 10: 0.25"]
    runs = read(f"[grid]\nhierarchy.participation = {json.dumps(values)}").runs
    assert [run.label.removeprefix("participation=") for run in runs] == [
        "0.5", "0.75", "2_0.5_all", "1_all_10_0.25",
    ]  # fmt: skip


def test_grid_names_are_short_and_unique(read):
    """Last parts of keys, unless two are equal; of a path, the file's name."""
    sweep = read(
        """
        [grid]
        gate.enabled = [true]
        cluster.enabled = [false]
        data.path = ["data/my set.npz"]
        train.lr-decay = [1]
        """
    )
    (run,) = sweep.runs
    assert run.label == "gate.enabled=true-cluster.enabled=false-path=my_set-lr-decay=1"


def test_the_study_in_the_repository_can_be_read(monkeypatch):
    monkeypatch.chdir(ROOT)
    sweep = read_sweep(Path("studies/examples/methods.toml"))
    assert [run.label for run in sweep.runs] == ["hierfl", "fedge", "leaves-alone"] * 3
    assert sweep.notes == []


def test_the_study_of_devices_can_be_read(monkeypatch):
    monkeypatch.chdir(ROOT)
    sweep = read_sweep(Path("studies/devices/speed.toml"))
    assert [run.label for run in sweep.runs[:3]] == ["fedavg", "fedbuff", "two-levels"] or len(
        sweep.runs
    ) == 15
    assert {run.supernodes for run in sweep.runs} == {240}
    assert sweep.notes == []


def test_the_protocol_of_ten_leaves_can_be_read(monkeypatch):
    """Six methods on three seeds; all options say what they do."""
    monkeypatch.chdir(ROOT)
    sweep = read_sweep(Path("studies/protocols/ten-by-ten.toml"))
    assert len(sweep.runs) == 6 * 3
    assert {run.supernodes for run in sweep.runs} == {100}
    assert {(run.config.train.local_steps, run.config.partition.kind) for run in sweep.runs} == {
        (10, "two-level")
    }
    assert sweep.notes == []


def test_the_example_of_the_page_can_be_read(monkeypatch, tmp_path):
    """Its named runs are the ones that docs/sweeps.md speaks of."""
    page = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    example, search = re.findall(r"```toml\n(\[sweep\].*?)```", page, re.DOTALL)
    assert "[search]" in search  # which test_search.py reads
    (tmp_path / "study.toml").write_text(example)
    monkeypatch.chdir(ROOT)
    sweep = read_sweep(tmp_path / "study.toml")
    assert len(sweep.runs) == 2 * 1 * 2 * 5
    assert "fedge-0.9-motionsense-lr=0.01-seed1" in {run.name for run in sweep.runs}
    assert "hierarchy.num-servers = 6 overrides 3 of fedge:hierfl" in sweep.notes


@given(
    st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True),
    st.lists(st.integers(1, 3), min_size=0, max_size=3),
)
def test_the_number_of_runs_is_the_product(tmp_path_factory, seeds, sizes):
    """Any axes: seeds × entries of each; names differ; the configuration of each is its own name's."""
    axes = "".join(
        f"[[axis{i}]]\nname = 'e{j}'\ntrain.local-epochs = {j + 1}\n"
        for i, size in enumerate(sizes)
        for j in range(size)
    )
    path = tmp_path_factory.mktemp("plan") / "s.toml"
    path.write_text(f"[sweep]\nseeds = {seeds}\n{axes}")
    runs = read_sweep(path).runs
    expected = len(seeds)
    for size in sizes:
        expected *= size
    assert len(runs) == len({run.name for run in runs}) == expected
    for run in runs:
        assert isinstance(run.config, Config)
        assert run.config.seed == run.seed
        if sizes:
            assert run.config.train.local_epochs == int(run.point[f"axis{len(sizes) - 1}"][1:]) + 1


# --- what is refused ----------------------------------------------------------------------------------


_TWO_WAYS = "\n".join(
    f"[[{axis}]]\nname = '{name}'" for axis, name in (("a", "x"), ("a", "x-y"), ("b", "y-z"), ("b", "z"))
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[bse]\ntrain.lr = 1.0", "study.toml: [bse] is not a table of a sweep file; did you mean base?"),
        ("[variants]\nname = 'a'", "; write an axis as [[variants]], once per entry"),
        ("[[variants]]\ntrain.lr = 1.0", "[[variants]]: name must be letters, digits and any of"),
        ("[[variants]]\nname = 'a b'", "but is 'a b'"),
        ("[[v]]\nname = 'a'\ntrain.lt = 1.0", "train.lt is not a configuration key; did you mean"),
        ("[[v]]\nname = 'a'\nconfg = 'a.toml'", "confg is not a configuration key; did you mean config"),
        ("[[v]]\nname = 'a'\n[[v]]\nname = 'a'", "[[v]]: names must differ, but a occurs twice"),
        ("[[v]]\nname = 'a'\n[[v]]\nname = 'b'\nseed = 4", "[[v]] number 2: seed is set by the sweep; use"),
        ("[[v]]\nconfig = 'c.toml'", "config must be a readable file, but c.toml"),
        ("[[v]]\nconfig = 3", "config must be the name of a TOML file, but is 3"),
        ("[[v]]\nname = 'a'\nsupernodes = 0", "supernodes, the number of clients, must be a whole number"),
        ("[[v]]\nname = 'a'\ntrain.lr = 'x'", "a-seed1: train.lr must be a number, but is 'x'"),
        ("[base]\nrun-name = 'a'", "[base]: run-name is set by the sweep"),
        ("[base]\nname = 'a'", "[base]: name belongs in [sweep]"),
        ("[base]\nscaffold.enabled = true\nleaf.strategy = 'krum'", "add scaffold.enabled=false"),
        ("[grid]\ntrain.lr = 0.1", "[grid]: train.lr must be a list of values, but is 0.1"),
        ("[grid]\ntrain.lr = []", "[grid]: train.lr must be a list of values, but is []"),
        ("[grid]\ntrain.rl = [1]", "[grid]: train.rl is not a configuration key"),
        (
            "[grid]\ntrain.lr = [0.1, 0.5, 1e-1]",
            "[grid]: values of train.lr must differ, but 0.1 occurs twice; remove one",
        ),
        ("[grid]\ncluster.tau = [1, 1.0]", "[grid]: values of cluster.tau must differ, but 1.0 occurs twice"),
        ("[grid]", "[grid]: it must be a table of lists"),
        (_TWO_WAYS, "names must differ, but x-y-z-seed1 occurs twice"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_in_one_line(read, text, words):
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert words in str(caught.value)
    assert str(caught.value).startswith("study.toml: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("", "a sweep file must have a table [sweep] with seeds"),
        (
            "[sweep]\n",
            "[sweep]: seeds must be a list of different whole numbers of at least 0, but is missing",
        ),
        ("[sweep]\nseeds = 5\n", "but is 5; e.g. seeds = [1, 2, 3]"),
        ("[sweep]\nseeds = [1, 1]\n", "but is [1, 1]"),
        ("[sweep]\nseeds = [true]\n", "but is [True]"),
        ("[sweep]\nseeds = [1]\nsupernode = 3\n", "supernode is not known here; did you mean supernodes?"),
        ("[sweep]\nseeds = [1]\nsupernodes = '9'\n", "must be a whole number of at least 1, but is '9'"),
        ("[sweep]\nseeds = [1]\nname = '../x'\n", "name must be letters, digits"),
        ("[sweep]\nseeds = [1]\nname = 'größe'\n", "any of _ . + = , -, of ASCII and at most"),
        ("[sweep]\nseeds = [1]\nkeep-checkpoints = 1\n", "keep-checkpoints must be true or false, but is 1"),
        ("[sweep]\nseeds = [1]\nruns-dir = ''\n", "runs-dir must be the path of a folder"),
        ("[sweep\n", "the sweep file must be TOML, but study.toml"),
    ],
)
def test_what_cannot_be_meant_in_its_head(read, head, words):
    with pytest.raises(ConfigError) as caught:
        read("", head=head)
    assert words in str(caught.value)


GRID = "".join(
    f"{key} = {[n / 100 for n in range(1, 50)]}\n"
    for key in ("train.lr", "train.momentum", "train.prox-mu", "cluster.tau")
)


@pytest.mark.parametrize(
    ("text", "head", "words"),
    [
        ("", f"[sweep]\nseeds = {list(range(10_001))}\n", "entries of every axis must be at most 10000 runs"),
        (f"[grid]\n{GRID}", "[sweep]\nseeds = [1]\n", "must be at most 10000 runs, but are 5764801; split"),
    ],
    ids=["seeds", "grid"],
)
def test_more_runs_than_a_sweep_can_have_are_refused_before_they_are_listed(read, text, head, words):
    with pytest.raises(ConfigError) as caught:
        read(text, head)
    assert words in str(caught.value)


def test_no_name_of_a_sweep_leads_out_of_its_folder(tmp_path, monkeypatch):
    """1,200 sweep files with an odd name each, in each of four places: one line, or folders within."""
    monkeypatch.chdir(tmp_path)
    taken, refused = 0, []
    for number, name in enumerate(odd_names(1200, 2)):
        said = json.dumps(name.encode("utf-8", "replace").decode())
        plain = enumerate(("plain", "one", "kind", "small.npz"))
        head, entry, axis, value = (said if number % 4 == at else json.dumps(word) for at, word in plain)
        text = f"[sweep]\nseeds = [1]\nname = {head}\n[[{axis}]]\nname = {entry}\n"
        Path("study.toml").write_text(text + f"[grid]\ndata.path = [{value}]\n" * (number % 4 == 3))
        try:
            sweep = read_sweep(Path("study.toml"))
        except ConfigError as error:
            refused.append(str(error))
            continue
        taken += 1
        assert sweep.folder.parent == Path("runs"), name
        for run in sweep.runs:
            assert run.folder.parent == sweep.folder, name
            assert re.fullmatch(r"[\w.+=,-]+", run.folder.name, re.ASCII), name
            run.folder.mkdir(parents=True, exist_ok=True)
    assert taken > 50
    assert all(line.isprintable() and len(line) < 1000 for line in refused)


@pytest.mark.parametrize("column", sorted(COLUMNS))
def test_an_axis_is_named_like_no_column_of_the_tables(read, column):
    """Two columns of one name, of which readers of CSV keep one, or rename one in silence."""
    text = f"""
    [[variants]]
    name = "a"
    [[{column}]]
    name = "b"
    """
    with pytest.raises(ConfigError, match=rf"\[{column}\] must have another name.*\[\[my-{column}\]\]"):
        read(text)


def test_the_columns_of_the_tables_are_known():
    """A column added to sweep.csv or runs.csv belongs to `COLUMNS`."""
    assert {*CSV_COLUMNS, "run", "seed", "status"} == COLUMNS
