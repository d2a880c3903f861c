"""Parts of a wheel beside Python: the native step where a C++ compiler is, or for an index the site.

With FEDGE_WHEEL=index the wheel is for a package index (`make dist`): of any system, so without the native
step, and with the site that `make docs` has built.
"""

import importlib.util
import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BesidePython(BuildHookInterface):
    """Compiles fedge/native/src beside its sources, where an editable install looks, too; takes the site."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library; the wheel is then of this system, else of any."""
        if self.target_name != "wheel":
            return
        if os.environ.get("FEDGE_WHEEL") == "index":
            self._add_site(build_data)
            return
        native = _module(Path(self.root) / "fedge" / "native" / "build.py")
        library = native.LIBRARY
        try:
            native.compiler()
            if not native.is_built():
                native.build()
        except native.BuildError as error:
            self.app.display_warning(f"fedge: without the native step: {error}; training goes on in PyTorch")
            return
        for file in (library, native.digest_file(library)):
            build_data["artifacts"].append(str(file.relative_to(self.root)))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def _add_site(self, build_data: dict[str, Any]) -> None:
        """Put the built site into the wheel, if it is there."""
        site = Path(self.root) / "site"
        if (site / "index.html").is_file():
            build_data["force_include"][str(site)] = "fedge/packaged/site"
        else:
            self.app.display_warning("fedge: without the site: `make docs` builds it")


def _module(path: Path) -> Any:
    """A module by its file; Fedge itself cannot be imported yet."""
    spec = importlib.util.spec_from_file_location("fedge_native_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
