"""A command line that cannot be read: one line, exit code 2, what is near."""

import argparse
import re
import subprocess
import sys

import pytest

from fedge.cli import _build_parser, main
from fedge.launch.command_line import _commands
from hhar.cli import make_parser as hhar_parser


def refused(words, capsys, code=2):
    """The line that a command line is refused with."""
    try:
        found = main(words)
    except SystemExit as ended:
        found = ended.code
    printed = capsys.readouterr()
    assert (found, printed.out) == (code, "")
    assert printed.err.startswith("fedge: ")
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.mark.parametrize(
    ("words", "telling"),
    [
        ("rnu", "there is no command 'rnu'; did you mean run?"),
        ("fly", "there is no command 'fly'; it is one of demo, new, run, "),
        ("help fly", "there is no command 'fly'; it is one of demo, new, run, "),
        ("train", "there is no command 'train'; did you mean run?"),
        ("results", "there is no command 'results'; did you mean report or runs?"),
        ("version", "there is no command 'version'; did you mean --version?"),
        ("-v", "there is no '-v'; see fedge --help"),
        ("--verbose run", "there is no '--verbose'; see fedge --help"),
        ("tables clients", "too many words: 'clients'; see fedge tables --help"),
        ("options train lr", "too many words: 'lr'; see fedge options --help"),
        ("status --seed", "there is no '--seed'; see fedge status --help"),
        ("run . local-simulation seed", "too many words: 'seed'; see fedge run --help"),
        ("run --verbose", "there is no '--verbose'; see fedge run --help"),
        (
            "run --federation-config a=1",
            "there is no '--federation-config'; the number of clients is --clients N",
        ),
        (
            "run --federation local",
            "there is no '--federation'; its name follows the folder's: fedge run . NAME",
        ),
        ("run --stream", "there is no '--stream'; leave it out"),
        ("status --stream", "there is no '--stream'; see fedge status --help"),
        ("run --wokers 3", "there is no '--wokers'; did you mean --workers?"),
        ("run --train.lr=0.1", "there is no --train.lr: options of a run follow -c, as -c 'train.lr=0.1'"),
        ("run --seed", "as -c 'seed=42'"),
        ("run --rounds 5", "as -c 'num-server-rounds=5'"),
        ("run --round 5", "as -c 'num-server-rounds=5'"),
        ("run --lr=0.1", "as -c 'train.lr=0.1'"),
        ("run --dataset=mnist", "as -c 'data.path=mnist'"),
        ("run --local_epochs 2", "as -c 'train.local-epochs=2'"),
        ("run . local-simulation third", "too many words: 'third'; see fedge run --help"),
        ("compare", "the following arguments are required: RUN; see fedge compare --help"),
        ("sweep x.toml --jobs many", "argument --jobs: invalid int value: 'many'"),
        ("run -c", "argument -c/--run-config: expected one argument"),
    ],
)
def test_one_line_that_says_what_is_near(words, telling, capsys):
    assert telling in refused(words.split(), capsys)


ALSO = sorted((word, name) for name, command in _commands(_build_parser()).items() for word in command.also)


@pytest.mark.parametrize(("word", "name"), ALSO)
def test_a_name_that_other_tools_have_for_a_command_leads_to_it(word, name, capsys):
    assert re.search(rf"did you mean ([a-z]+ or )?{name}( or [a-z]+)?\?$", refused([word], capsys).strip())


@pytest.mark.parametrize("words", [["help"], ["help", "run"]])
def test_help_is_a_command_too(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(" ".join(["usage: fedge", *words[1:]]))


def test_fedge_is_a_module_too():
    """Where scripts are not on the path."""
    found = subprocess.run(
        [sys.executable, "-m", "fedge", "--version"], capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith("fedge ")


@pytest.mark.parametrize(
    ("override", "telling"),
    [
        (
            "cluster.regroup=1",
            "cluster.regroup is not a configuration key; did you mean cluster.regroup-every",
        ),
        ("train.modle=cnn", "train.modle is not a configuration key; did you mean train.model?"),
        ("train.lr=fast", "train.lr must be a number, but is 'fast'"),
        ("report=yes", "report must be true or false, but is 'yes'"),
    ],
)
def test_a_word_without_quotes_is_refused_for_what_is_wrong_with_it(override, telling, capsys):
    """And never for its missing quotes."""
    assert telling in refused(["run", "-c", override], capsys, code=4)


@pytest.mark.parametrize("words", ["train.lr=0.1", "hierfl.toml", "fedge:hierfl", ". fedge:hierfl"])
def test_an_option_without_c_is_known_for_what_it_is(words, capsys):
    """As a folder or a federation it would be looked for in vain."""
    word = words.split()[-1]
    assert f"use -c '{word}'" in refused(["run", *words.split()], capsys, code=4)


@pytest.mark.parametrize(
    "words",
    [
        ["run", "x" * 5000],
        ["run", "-c", f"data.path={'x' * 5000}"],
        ["run", "-c", "x" * 5000 + ".toml"],
        ["sweep", "x" * 5000],
        ["predict", "latest", "x" * 5000],
        ["datasets", "info", "x" * 5000],
        ["deal", "x" * 5000, "folder"],
    ],
)
def test_a_path_that_no_file_can_have_is_one_line(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = main(words)
    except SystemExit as ended:
        code = ended.code
    printed = capsys.readouterr().err
    assert code in (2, 4)
    assert printed.startswith("fedge: ")
    assert printed.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "profile"])
def test_the_help_of_a_run_shows_options(command, capsys, monkeypatch):
    """The most used ones; all of them on demand; as wide as the terminal."""
    printed = {}
    for words in ("--help", "--help-all"):
        monkeypatch.setenv("COLUMNS", "60")
        with pytest.raises(SystemExit) as ended:
            main([command, words])
        assert ended.value.code == 0
        printed[words] = capsys.readouterr().out
    assert "train.lr=0.05" in printed["--help"]
    assert "guard.retries" not in printed["--help"]
    assert "guard.retries=1" in printed["--help-all"]
    assert "\nguard: " in printed["--help-all"]
    assert max(map(len, printed["--help"].splitlines())) <= 60


def _all_parsers(parser):
    """A parser, and those of all commands under it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _all_parsers(command)


def _several(command):
    """Words for every argument without a dash, if their number is not fixed."""
    actions = command._get_positional_actions()
    if any(isinstance(action, argparse._SubParsersAction) for action in actions):
        return []
    if not any(action.nargs in ("?", "+") for action in actions):
        return []
    words = ["7" if action.type is int else "word" for action in actions]
    return [*words, "word"] if actions and actions[-1].nargs == "+" else words


@pytest.mark.parametrize(
    "command", [p for p in _all_parsers(_build_parser()) if len(_several(p)) > 1], ids=lambda p: p.prog
)
def test_words_may_follow_options(command):
    """`fedge run . --workers 1 local-simulation` had too many words: argparse leaves out the last ones."""
    option = next(a for a in command._actions if a.option_strings and a.nargs is None and a.type is None)
    before, *after = _several(command)
    needed = [
        w for a in command._actions if a.required and a.option_strings for w in (a.option_strings[0], "7")
    ]
    given = [option.option_strings[0], option.choices[0] if option.choices else "given", *needed]
    expected, none = command.parse_known_args([before, *after, *given])
    assert not none
    assert command.parse_known_args([before, *given, *after]) == (expected, [])
    assert command.parse_known_args([*given, before, *after]) == (expected, [])


@pytest.mark.parametrize(
    "command", [*_all_parsers(_build_parser()), *_all_parsers(hhar_parser())], ids=lambda p: p.prog
)
def test_the_help_of_every_command_says_what_it_does(command):
    """Between its usage and its arguments, in a sentence."""
    described = re.search(r"\A(usage|Usage): .*?\n\n(.*?)\n\n", command.format_help(), re.DOTALL)
    assert re.fullmatch(r"[A-Z0-9].*\.", described[2], re.DOTALL), described[2]


@pytest.mark.parametrize("option", ["leaf.strategy", "cluster.method", "train.algorithm", "asynchrony.rule"])
@pytest.mark.parametrize("name", ["fedprox", "ifca", "fedbuff", "bulyan"])
def test_a_name_of_another_option_leads_there(option, name, capsys):
    """FedProx is a strategy in Flower, and a client's algorithm here."""
    of = {
        "fedprox": ["train.algorithm"], "ifca": ["cluster.method"], "bulyan": ["leaf.strategy", "cloud.rule"],
        "fedbuff": ["asynchrony.rule", "asynchrony.cloud-rule"],
    }[name]  # fmt: skip
    if option not in of:
        said = refused(["run", "-c", f"{option}={name} scaffold.enabled=false"], capsys, code=4)
        assert said.endswith(f"; it is for another option: {' or '.join(f'{key}={name}' for key in of)}\n")


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_help_shows_every_command_once_in_its_group(words, capsys):
    """With no word at all, too: exit code 0, on standard output."""
    try:
        code = main(words)
    except SystemExit as ended:
        code = ended.code
    lines = capsys.readouterr().out.splitlines()
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    named = [line.split()[0] for line in lines if line[:2] == "  " and line[2:3].isalpha()]
    assert code == 0
    assert titles[:3] == ["options:", "begin here:", "carry out runs:"]
    assert sorted(named) == sorted(_commands(_build_parser()))
    assert max(map(len, lines)) <= 80
