"""Modules of the user: imported again for another run, and for the same one after its end."""

import sys

from own_code import forgotten

from fedge.process.own_modules import OwnModules


def test_modules_stay_in_a_run_and_are_imported_again_for_the_next(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("module_before", "module_of_a_run"):
        (tmp_path / f"{name}.py").write_text("")
    with forgotten(tmp_path):
        sys.path.insert(0, str(tmp_path))
        import module_before  # noqa: F401

        modules = OwnModules()
        modules.begin("a run")
        import module_of_a_run

        modules.begin("a run")
        assert "module_of_a_run" in sys.modules
        modules.end()
        modules.begin("a run")
        assert "module_of_a_run" not in sys.modules
        import module_of_a_run  # noqa: F401, F811

        modules.begin("another run")
        assert "module_of_a_run" not in sys.modules
        assert "module_before" in sys.modules
