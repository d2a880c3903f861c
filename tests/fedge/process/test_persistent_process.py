"""A process that stays for further messages: only with a GPU, without a failure, and without others' code."""

import sys

import pytest

from fedge.process import persistent_process


@pytest.fixture(autouse=True)
def life(monkeypatch):
    """A process's life of its own."""
    monkeypatch.setattr(persistent_process, "_life", persistent_process._Life())


def test_only_a_process_that_may_holds_a_gpu_and_has_not_failed_stays(monkeypatch):
    monkeypatch.setattr(persistent_process, "holds_gpu", lambda: True)
    assert not persistent_process.handles_further_messages()
    persistent_process.allow_further_messages()
    assert persistent_process.handles_further_messages()
    monkeypatch.setattr(persistent_process, "holds_gpu", lambda: False)
    assert not persistent_process.handles_further_messages()
    monkeypatch.setattr(persistent_process, "holds_gpu", lambda: True)
    persistent_process.note_failure()
    assert not persistent_process.handles_further_messages()
    persistent_process.allow_further_messages()  # in a new process, forked from one that has failed
    assert persistent_process.handles_further_messages()


def test_code_of_the_users_is_imported_anew_for_another_run_and_packages_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    persistent_process.allow_further_messages()
    file = tmp_path / "own_code_of_a_run.py"
    file.write_text("answer = 1")
    persistent_process.begin_message_of(3)
    import own_code_of_a_run

    assert own_code_of_a_run.answer == 1
    persistent_process.begin_message_of(3)
    assert "own_code_of_a_run" in sys.modules
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "package_of_others.py").write_text("")
    monkeypatch.syspath_prepend(str(site))
    import package_of_others  # noqa: F401

    file.write_text("answer = 22")
    persistent_process.begin_message_of(4)
    assert "own_code_of_a_run" not in sys.modules
    assert "package_of_others" in sys.modules
    del sys.modules["package_of_others"]


def test_a_process_of_one_message_forgets_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "other_own_code.py").write_text("")
    persistent_process.begin_message_of(3)
    import other_own_code  # noqa: F401

    persistent_process.begin_message_of(4)
    assert "other_own_code" in sys.modules
    del sys.modules["other_own_code"]
