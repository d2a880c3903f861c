"""Parts of a wheel beside Python: the native step where a C++ compiler is, or for an index the site.

With FEDGE_WHEEL=index the wheel is for a package index (`make dist`): of any system, so without the native
step, and with the site that `make docs` has built. With FEDGE_WHEEL=manylinux it has both, the step built
anew for old systems, too; `tools/manylinux.py` gives it its name.
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
        wanted = os.environ.get("FEDGE_WHEEL")
        if wanted in ("index", "manylinux"):
            self._add_site(build_data)
        if wanted == "index":
            return
        native = _module(Path(self.root) / "fedge" / "native" / "build.py")
        if wanted == "manylinux":
            self._add_for_all(native, build_data)
            return
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
        _name(build_data)

    def _add_for_all(self, native: Any, build_data: dict[str, Any]) -> None:
        """Build the step for old systems, too, and put it into the wheel; without a compiler that fails."""
        folder = Path(self.root) / "build" / "for-all-linuxes"
        folder.mkdir(parents=True, exist_ok=True)
        header = Path(self.root) / "tools" / "manylinux.h"
        library = native.build(folder / native.LIBRARY.name, flags=("-include", str(header)))
        for file in (library, native.digest_file(library)):
            build_data["force_include"][str(file)] = f"fedge/native/{file.name}"
        _name(build_data)

    def _add_site(self, build_data: dict[str, Any]) -> None:
        """Put the built site into the wheel, if it is there."""
        site = Path(self.root) / "site"
        if (site / "index.html").is_file():
            build_data["force_include"][str(site)] = "fedge/packaged/site"
        else:
            self.app.display_warning("fedge: without the site: `make docs` builds it")


def _name(build_data: dict[str, Any]) -> None:
    """Name the wheel after this system."""
    build_data["pure_python"] = False
    build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def _module(path: Path) -> Any:
    """A module by its file; Fedge itself cannot be imported yet."""
    spec = importlib.util.spec_from_file_location("fedge_native_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
