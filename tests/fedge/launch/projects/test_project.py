import os
from pathlib import Path

import pytest
from flwr.common.config import parse_config_args

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.engine.federation import Federation
from fedge.launch.projects.project import Project, flatten, parse_override, read_toml

ROOT = Path(__file__).parents[4]

OVERRIDES = [
    "train.lr=0.1",
    "train.lr=1e-3 cluster.tau=0.9",
    'train.model="cnn-pool"',
    "train.model='cnn-pool'",
    'data.path="my data/windows file.npz" seed=7',
    "data.path='my data/windows file.npz' seed=7",
    "scaffold.enabled=false gate.enabled=true",
    'hierarchy.clients-per-server="4,3,2"',
    "num-server-rounds=5",
    "  seed=1   train.local-epochs=2  ",
    'run-name="a=b"',
    'run-name=""',
    "gate.min-gain=-0.5",
    "train.lr=1_000.5",
    'train."lr"=0.5',
    "seed=0x10",
]


def write_project(folder, text):
    """Write pyproject.toml with `text` under the app's tables, and return the folder."""
    (folder / "pyproject.toml").write_text(f'[tool.flwr.app]\npublisher = "x"\n{text}')
    return folder


def test_nested_tables_by_hand():
    assert flatten({"a": 1, "b": {"c": 2, "d": {"e": 3}}}) == {"a": 1, "b.c": 2, "b.d.e": 3}


@pytest.mark.parametrize("text", OVERRIDES)
def test_an_override_means_what_it_means_to_flower(text):
    ours, flowers = parse_override(text), parse_config_args([text])
    assert ours == flowers
    assert [type(v) for v in ours.values()] == [type(v) for v in flowers.values()]


@pytest.mark.parametrize("name", ["fedge", "fedavg", "hierfl", "scaffold", "smoke"])
def test_a_file_means_what_it_means_to_flower(name):
    path = str(ROOT / "configs" / f"{name}.toml")
    assert parse_override(path) == parse_config_args([path])
    from_run_config(Project(ROOT).run_config([path]))


def test_later_overrides_win():
    config = Project(ROOT).run_config(["train.lr=0.1 seed=1", "train.lr=0.2"])
    assert (config["train.lr"], config["seed"], config["num-server-rounds"]) == (0.2, 1, 100)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("train.model=cnn", {"train.model": "cnn"}),
        ("hierarchy.tree=2x3x4 run-name=3rd", {"hierarchy.tree": "2x3x4", "run-name": "3rd"}),
        ("hierarchy.clients-per-server=4,3,2", {"hierarchy.clients-per-server": "4,3,2"}),
        (
            "train.model=my_model:Net data.path=data/mine.npz",
            {"train.model": "my_model:Net", "data.path": "data/mine.npz"},
        ),
        ("train.lr=0.1 gate.enabled=true", {"train.lr": 0.1, "gate.enabled": True}),
        ("scenario-sizes=1", {"scenario-sizes": 1}),  # a number stays one, to be refused by name
        ("run-name=true", {"run-name": True}),
    ],
)
def test_text_needs_no_quotes_where_its_option_is_text(text, found):
    assert parse_override(text) == found


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        ("train.optimizer-args.betas=[0.9, 0.99]", "but has '0.99]'; write lists without blanks"),
        ("gate.enabled=yes", "gate.enabled must be true or false, but is 'yes'"),
        ("train.lr=fast", "train.lr must be a number, but is 'fast'"),
        ("no.such=word", "no.such is not a configuration key"),
    ],
)
def test_a_word_is_no_value_of_another_option(text, telling):
    """Refused for what is wrong with it, and not for its missing quotes."""
    with pytest.raises(ConfigError, match=telling):
        from_run_config(parse_override(text))


def test_an_override_may_name_only_known_keys(tmp_path):
    with pytest.raises(ConfigError, match=r"train\.lt is not a configuration key; did you mean train\.lr\?"):
        Project(ROOT).run_config(["train.lt=0.1"])


def a_folder(path):
    path.mkdir()


def a_pipe(path):
    os.mkfifo(path)


def links_in_a_circle(path):
    path.symlink_to(path.name)


def other_bytes(path):
    path.write_bytes(b"num-server-rounds = 1 # \xff")


def a_nul(path):
    path.write_bytes(b"num-server-rounds = 1\0")


def many_bytes(path):
    with path.open("wb") as file:
        file.truncate(2**30)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (a_folder, "is a folder; name the file itself"),
        (a_pipe, "is a pipe; name the file itself"),
        (links_in_a_circle, "its links lead to each other: name the file itself"),
        (other_bytes, "is not UTF-8 from byte 24 on; save it as UTF-8"),
        (a_nul, "correct that line"),
        (many_bytes, "must have at most 16777216 bytes, but"),
    ],
)
def test_a_file_of_options_that_is_none_is_refused_for_its_own_reason(tmp_path, make, words):
    """Never "check the path": something lies there."""
    make(tmp_path / "o.toml")
    with pytest.raises(ConfigError) as caught:
        parse_override(str(tmp_path / "o.toml"))
    assert words in str(caught.value)
    assert "o.toml" in str(caught.value)
    assert "check the path" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("train.lr", "has 'train.lr'; e.g. -c 'train.lr=0.1'"),
        ("train.lr=0.1 stray", "has 'stray'"),
        ("seed=3 train.lr=[0.1 run-name=x", "with TOML values, but has 'train.lr=[0.1' ("),
        ("seed=3 train.lr= 0.1", "write no blanks around =, as -c 'train.lr=0.1'"),
        ("train.lr = 0.1", "but has 'train.lr = 0.1'; write no blanks around =, as -c 'train.lr=0.1'"),
        ("seed=1 seed=2", "must have a key once, but has seed 2 times"),
        ("nowhere.toml", "nowhere.toml: No such file or directory; check the path"),
        ("configs/hierfl.toml", "configs/hierfl.toml is not there; Fedge's own is fedge:hierfl"),
        ("baselines/ifca.toml", "is not there; Fedge's own is fedge:baselines/ifca"),
        ("hierfl", "but has 'hierfl'; Fedge's own is fedge:hierfl"),
    ],
)
def test_what_cannot_be_read_is_answered_in_one_line(tmp_path, monkeypatch, text, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        parse_override(text)
    assert str(caught.value).startswith(("-c must be ", "-c must have "))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_toml_names_file_and_place(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("a = \n")
    with pytest.raises(ConfigError, match=r"must be TOML, but .*x\.toml: .*line 1.*; correct that line"):
        read_toml(path, "-c")


def test_no_project_and_no_app(tmp_path):
    with pytest.raises(ConfigError, match="must be a readable file"):
        Project(tmp_path / "elsewhere")
    (tmp_path / "pyproject.toml").write_text("[project]\nname='x'\n[tool.fedge.federations]\ndefault='a'\n")
    with pytest.raises(ConfigError, match=r"must have \[tool\.flwr\.app\], but .* does not"):
        Project(tmp_path)


@pytest.mark.parametrize("text", [None, "", "[project]\nname = 'mine'\n[tool.ruff]\nline-length = 99\n"])
def test_a_folder_of_no_app_has_the_options_and_federations_of_fedge(tmp_path, monkeypatch, text):
    """Any Python project has a pyproject.toml, of which Fedge need not be told."""
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    project = Project(tmp_path)
    assert project.packaged
    assert project.federation(None) == Project(ROOT).federation(None)
    assert project.run_config([]) == Project(ROOT).run_config([])
    missing = f"pyproject.toml in {tmp_path}" if text is None else "[tool.flwr.app] in pyproject.toml"
    assert project.why_packaged == f"no {missing}"
    monkeypatch.chdir(tmp_path)
    here = Project(Path()).why_packaged
    assert here == ("no pyproject.toml in this folder" if text is None else project.why_packaged)


def test_a_run_s_folder_is_no_project(tmp_path):
    """`fedge run runs/NAME` carried out the default study, a hundred rounds of it."""
    (tmp_path / "manifest.json").write_text("{}")
    assert Project(tmp_path).packaged  # other programs have files of this name, too
    (tmp_path / "run.log").touch()
    with pytest.raises(ConfigError, match=r"cannot be .*, which is a run's; fedge resume"):
        Project(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.fedge]\n")
    with pytest.raises(ConfigError, match=r"must have \[tool\.flwr\.app\]"):
        Project(tmp_path)


def test_an_app_without_federations_is_told_how_to_add_one(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"has none; add one, as default = .*num-supernodes = 9"):
        Project(write_project(tmp_path, "")).federation(None)


def test_the_federations_of_this_project():
    """As pyproject.toml has them: 9 clients with a CPU each, 30 with half of one, 9 with a quarter GPU."""
    project = Project(ROOT)
    assert project.federation(None) == project.federation("local-simulation") == Federation(9, 1.0, 0.0)
    assert project.federation("local-simulation-30") == Federation(30, 0.5, 0.0)
    assert project.federation("local-simulation-gpu") == Federation(9, 1.0, 0.25)


def test_an_unknown_federation_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError) as caught:
        Project(ROOT).federation("local")
    message = str(caught.value)
    assert message.startswith("federation must be one of local-simulation, local-simulation-30, ")
    assert "but is 'local'; see [tool.flwr.federations]" in message


def test_a_deployed_federation_has_no_known_size(tmp_path):
    app = write_project(tmp_path, "[tool.flwr.federations.far]\naddress = '127.0.0.1:9093'\n")
    assert Project(app).federation("far") == Federation()


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ("insecure = true", "None"),
        ("options.num-supernodes = 0", "0"),
        ("options.num-supernodes = '9'", "'9'"),
        ("options.num-supernodes = true", "True"),
        ("options.num-supernodes = 9.0", "9.0"),
        ("options = 3", "None"),
    ],
)
def test_a_federation_must_say_how_many(tmp_path, table, found):
    app = write_project(tmp_path, f"[tool.flwr.federations.near]\n{table}\n")
    with pytest.raises(ConfigError) as caught:
        Project(app).federation("near")
    words = (
        f"federation near must set options.num-supernodes to a whole number of at least 1, but has {found}; "
    )
    assert str(caught.value).startswith(words)


PARTS = """
[tool.flwr.app]
publisher = "me"
[tool.flwr.app.components]
serverapp = "{server}"
clientapp = "my_client:app"
[tool.flwr.app.config]
run-name = ""
[tool.flwr.app.config.train]
model = "my_model:Net"
model-args.width = 4
"""


def project_with(folder, server="fedge.server_app:app"):
    (folder / "pyproject.toml").write_text(PARTS.format(server=server))
    return Project(folder)


def test_arguments_are_told_to_flower_by_the_keys_that_it_knows(tmp_path):
    project = project_with(tmp_path)
    config = project.run_config(["train.model-args.width=8 train.lr=0.05"])
    assert config["train.model-args"] == '{"width": 8}'
    assert project.as_declared({**config, "run-name": "x"}) == {
        "run-name": "x",
        "train.model": "my_model:Net",
        "train.model-args.width": 8,
    }


@pytest.mark.parametrize(
    ("override", "key"),
    [("train.lr=0.5", "train.lr"), ("train.model-args.depth=2", "train.model-args.depth")],
)
def test_an_option_that_flower_would_not_take_is_named(tmp_path, override, key):
    project = project_with(tmp_path)
    with pytest.raises(
        ConfigError, match=f"must be in .tool.flwr.app.config., but {key} is not there; add it to"
    ):
        project.as_declared(project.run_config([override]))


def test_components_are_honoured_or_refused(tmp_path):
    project = project_with(tmp_path)
    project.refuse_other_server()
    assert project.client_app == "my_client:app"
    with pytest.raises(
        ConfigError, match=r"^serverapp must be fedge\.server_app:app for fedge run.*flwr run"
    ):
        project_with(tmp_path, server="my_server:app").refuse_other_server()


def test_what_flwr_run_would_answer_with_a_traceback_is_named(tmp_path):
    """Flower takes with -c only keys of pyproject.toml; `fedge run` takes every option."""
    project = project_with(tmp_path)
    project.refuse_undeclared(["train.model-args.width=8", "train.model='linear'"])
    with pytest.raises(
        ConfigError, match=r"train.model-args.depth is not there; add it to .* or use fedge run"
    ):
        project.refuse_undeclared(["train.model-args.width=8 train.model-args.depth=2"])
    with pytest.raises(ConfigError, match=r"""write cluster.method-args='{"k": 2}', or use fedge run"""):
        Project(ROOT).refuse_undeclared(["cluster.method-args.k=2"])
