"""A server's folder: one process at a time."""

import errno
import logging

import pytest

from fedge.config.registers.option import ConfigError
from fedge.launch import own_folder
from fedge.launch.own_folder import exclusive_folder


def test_a_folder_is_used_by_one_server_and_then_by_the_next(tmp_path):
    with (
        exclusive_folder(tmp_path, "leaf server"),
        pytest.raises(ConfigError, match=rf"another leaf server uses {tmp_path}; stop that, or choose"),
        exclusive_folder(tmp_path, "leaf server"),
    ):
        pass
    with exclusive_folder(tmp_path, "leaf server"):
        pass


def test_a_folder_that_is_none_is_refused(tmp_path):
    with (
        pytest.raises(ConfigError, match="--folder must be writable"),
        exclusive_folder(tmp_path / "x", "SuperLink"),
    ):
        pass


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch, caplog):
    def none(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(own_folder.fcntl, "flock", none)
    with caplog.at_level(logging.WARNING), exclusive_folder(tmp_path, "leaf server"):
        pass
    assert "No locks available" in caplog.text
