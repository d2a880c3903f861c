"""One option: declared, checked, and refused in one line that says what to do."""

from dataclasses import dataclass

import pytest

from fedge.config.registers.option import ConfigError, Section, key_of, nearest, option, shown


@dataclass(frozen=True)
class Kettle(Section):
    """A section made up for the test."""

    SECTION = "kettle"
    heat_s: float = option(3.0, "seconds of heat", above=0.0, maximum=60.0)
    cups: int = option(2, "cups", minimum=1, words=("auto",))
    colour: str = option("red", "its colour", choices=("red", "green"))
    lid: bool = option(True, "whether it has a lid")


def test_values_come_in_the_type_of_the_default():
    kettle = Kettle(heat_s=4, cups="auto")
    assert (kettle.heat_s, type(kettle.heat_s)) == (4.0, float)
    assert kettle.cups == "auto"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"heat_s": 0.0}, "kettle.heat-s must be above 0.0, but is 0.0; its default is 3.0"),
        ({"heat_s": 61.0}, "kettle.heat-s must be at most 60.0"),
        ({"heat_s": float("nan")}, "kettle.heat-s must be a finite number"),
        (
            {"heat_s": "hot"},
            "kettle.heat-s must be a number, but is 'hot'; set for example kettle",
        ),
        ({"cups": 0}, "kettle.cups must be at least 1, but is 0"),
        ({"cups": True}, "kettle.cups must be a whole number or"),
        ({"cups": 2**63}, "kettle.cups must be at most 9223372036854775807 in size"),
        ({"colour": "gren"}, "kettle.colour must be one of red, green, but is 'gren'"),
        ({"lid": 1}, "kettle.lid must be true or false, but is 1"),
    ],
)
def test_a_wrong_value_names_key_rule_value_and_next_step(wrong, words):
    with pytest.raises(ConfigError) as caught:
        Kettle(**wrong)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_near_misses_are_named():
    assert "cluster.tau" in nearest("cluster.tua", ["cluster.tau", "train.lr"])
    assert nearest("zzz", ["cluster.tau"]) == ""


def test_keys_have_dashes():
    assert key_of("train", "batch_size") == "train.batch-size"
    assert key_of("", "run_name") == "run-name"


def test_an_error_is_one_line_of_bounded_length():
    long = str(ConfigError("a\nb\x1b[31m" + "x" * 5000))
    assert "\n" not in long
    assert "\x1b" not in long
    assert len(long) <= 810


def test_a_value_that_cannot_be_shown():
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

    assert shown(Odd()) == "Odd that cannot be shown"
    assert len(shown("x" * 1000)) < 210


def test_jupyter_shows_the_line_alone():
    """Forty frames of Fedge's own code before it would help nobody."""
    assert ConfigError("train.lr must be above 0")._render_traceback_() == [
        "ConfigError: train.lr must be above 0"
    ]


def own_loss(answers, y):
    return answers[:, 0] * y


@pytest.mark.parametrize("option", ["train.loss", "train.model", "train.metrics", "hierarchy.selection"])
def test_code_in_place_of_its_name_is_told_how_to_be_named(option):
    from fedge.config.flat import from_run_config

    with pytest.raises(ConfigError, match='; name it, as "module:own_loss" of a file, or pass it'):
        from_run_config({option: own_loss})
    with pytest.raises(ConfigError, match=f"set for example {option}="):
        from_run_config({option: 1})


@pytest.mark.parametrize(
    ("option", "value", "step"),
    [
        ("cluster.count", 2, 'cluster.count="2"'),
        ("hierarchy.participation", 0.5, 'hierarchy.participation="0.5"'),
        ("hierarchy.clients-per-server", 10**12, 'hierarchy.clients-per-server="auto"'),
        ("scenario-sizes", float("nan"), 'scenario-sizes=""'),
    ],
)
def test_a_number_without_its_quotes_is_shown_with_them(option, value, step):
    from fedge.config.flat import from_run_config

    with pytest.raises(ConfigError) as caught:
        from_run_config({option: value})
    assert str(caught.value).endswith(f"; set for example {step}")
