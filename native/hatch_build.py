"""The build hook: puts the compiled C core into a wheel, or beside the package for an editable install."""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))

import build_core


class CoreBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # its parameter is hatchling's own configuration
    """Builds the core; without a compiler the package is pure Python, unless SPINNEY_REQUIRE_NATIVE=1.

    SPINNEY_BUILD_CORE=0 leaves the core to the caller, as the launcher wants it.
    """

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or os.environ.get("SPINNEY_BUILD_CORE") == "0":
            return
        try:
            if version == "editable":
                build_core.build()
            else:
                self._put_into_wheel(build_data)
        except build_core.BuildError as error:
            if os.environ.get("SPINNEY_REQUIRE_NATIVE") == "1":
                raise
            self.app.display_warning(f"spinney: {error}; going on in pure Python, which is slower")

    def _put_into_wheel(self, build_data: dict[str, Any]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="spinney-")
        core = build_core.build(Path(self._folder.name) / build_core.IN_PLACE.name)
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["force_include"][str(core)] = f"spinney/{core.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's signature
        if hasattr(self, "_folder"):
            self._folder.cleanup()
