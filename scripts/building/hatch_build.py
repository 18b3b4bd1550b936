"""Hatch's hook: a wheel ships compiled functions, so that a first fit need not wait for a compiler.

BIGSVM_BUILD_CACHE says for which uses: `demo` by default, `all` for a wheel that many install, `none` for none.  Where
compiling fails the wheel is one without, and says so: everything works, and is compiled on first use.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE, DEFAULT = "BIGSVM_BUILD_CACHE", "demo"
_ALL = "demo,fit,predict,certify"
_PATIENCE_S = 1200.0  # more than the processes that compile have


def wanted_uses() -> str:
    """What the variable asks for, with commas; empty for a wheel without."""
    uses = os.environ.get(VARIABLE, DEFAULT).strip()
    return {"none": "", "all": _ALL}.get(uses, uses)


class CompiledCacheHook(BuildHookInterface):
    """Compiles in a process of its own; nothing that goes wrong there fails the build."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the compiled functions to a wheel that is installed, not to an editable one, whose sources change."""
        uses = wanted_uses()
        if version != "standard" or not uses:
            self.app.display_info("bigsvm: without compiled functions; they are compiled on first use")
            return
        self._folder = tempfile.TemporaryDirectory(prefix="bigsvm-")
        out = Path(self._folder.name) / "compiled"
        script = Path(self.root) / "scripts" / "building" / "compiled_cache.py"
        command = [sys.executable, str(script), str(out), uses]
        self.app.display_info(f"bigsvm: compiling what is usual ({uses}); {VARIABLE}=none leaves it out")
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)
            failure = done.stderr.strip().rpartition("\n")[2] if done.returncode else ""
        except (OSError, subprocess.SubprocessError) as error:
            failure = str(error)
        if failure or not out.is_dir():
            self.app.display_warning(f"bigsvm: without compiled functions, which are compiled on first use: {failure}")
            return
        build_data["force_include"][str(out)] = "bigsvm/_compiled_cache"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is written: what was compiled for it goes."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()
