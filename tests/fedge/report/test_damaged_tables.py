"""Errors of pages whose tables are damaged: one line that names what is known."""

from types import SimpleNamespace

import pytest

from fedge.config.registers.option import ConfigError
from fedge.records.manifest import RunFolderError
from fedge.report.damaged_tables import intact_tables


def run_of(folder, status="completed", outputs=None, problems=()):
    return SimpleNamespace(
        folder=folder, manifest={"status": status, "outputs": outputs or {}}, problems=list(problems)
    )


def refused(runs, error):
    with pytest.raises(RunFolderError) as caught, intact_tables(runs):
        raise error
    assert caught.value.__cause__ is error
    return str(caught.value)


def test_a_damaged_table_is_named_with_the_error_and_the_next_step(tmp_path):
    run = run_of(tmp_path, outputs={"metrics/clients.csv": "0" * 64}, problems=["timing.csv is missing"])
    assert refused([run], ValueError("no row\nof a page\x1b")) == (
        f"tables must be as the run wrote them, but {tmp_path}: metrics/clients.csv is missing; {tmp_path}: "
        "timing.csv is missing; ValueError: no row; restore them from a copy, or start the run again"
    )


def test_of_a_run_that_has_not_ended_the_error_alone_is_known(tmp_path):
    said = refused([run_of(tmp_path, status="running")], KeyError("x\x1b[2J"))
    assert said.startswith("tables must be as the run wrote them, but KeyError: 'x\\x1b[2J'; restore")


@pytest.mark.parametrize("error", [ConfigError("a line"), OSError(28, "full")])
def test_errors_that_are_a_line_already_stay(tmp_path, error):
    with pytest.raises(type(error)) as caught, intact_tables([run_of(tmp_path)]):
        raise error
    assert caught.value is error
