"""How a wheel comes to its compiled functions; and that it is a wheel all the same where it does not."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from itertools import takewhile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bigsvm.compiled.cache.places import ABOUT, lacks
from bigsvm.run.warm import CASES, USES

ROOT = Path(__file__).parents[1]


class Interface:
    """As much of hatchling as the hook sees."""

    def __init__(self) -> None:
        self.root, self.said = str(ROOT), list[str]()
        self.app = SimpleNamespace(display_info=self.said.append, display_warning=self.said.append)


@pytest.fixture
def building(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of `scripts/building`, beside a hatchling that wants nothing itself."""
    for name in ("hatchling", "hatchling.builders", "hatchling.builders.hooks", "hatchling.builders.hooks.plugin"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    names = ("build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable",
             "get_requires_for_build_sdist", "get_requires_for_build_wheel")  # fmt: skip
    backend = SimpleNamespace(**{name: lambda settings=None: ["hatchlings"] for name in names})
    monkeypatch.setitem(sys.modules, "hatchling.build", backend)
    interface = SimpleNamespace(BuildHookInterface=Interface)
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "building"))
    for name in ("backend", "hatch_build", "compiled_cache"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in ("backend", "hatch_build", "compiled_cache"):
        sys.modules.pop(name, None)


def built(building: Any, version: str = "standard") -> tuple[dict[str, Any], list[str]]:
    """What the hook made of the build, and what it said."""
    hook, data = building("hatch_build").CompiledCacheHook(), {"force_include": dict[str, str]()}
    hook.initialize(version, data)
    hook.finalize(version, data, "wheel")
    return data, hook.said


def test_a_wheel_has_what_was_compiled(building: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def compiled(command: list[str], **options: Any) -> Any:
        asked.append(command[3])
        Path(command[2]).mkdir()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(building("hatch_build").subprocess, "run", compiled)
    for uses in ("demo", "all", "fit,predict"):
        monkeypatch.setenv("BIGSVM_BUILD_CACHE", uses)
        data, _ = built(building)
        assert list(data["force_include"].values()) == ["bigsvm/_compiled_cache"]
        assert (data["pure_python"], data["infer_tag"]) == (False, True)
    monkeypatch.delenv("BIGSVM_BUILD_CACHE")
    built(building)
    assert asked == ["demo", ",".join(USES), "fit,predict", "demo"]


@pytest.mark.parametrize(("uses", "version"), [("none", "standard"), ("", "standard"), ("demo", "editable")])
def test_a_wheel_without_says_so(building: Any, monkeypatch: pytest.MonkeyPatch, uses: str, version: str) -> None:
    monkeypatch.setenv("BIGSVM_BUILD_CACHE", uses)
    monkeypatch.setattr(building("hatch_build").subprocess, "run", lambda *a, **k: pytest.fail("it compiles"))
    assert built(building, version) == (
        {"force_include": {}},
        ["bigsvm: without compiled functions; they are compiled on first use"],
    )


@pytest.mark.parametrize("how", ["code", "late", "nothing"])
def test_a_build_does_not_fail_where_compiling_does(building: Any, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    def failing(command: list[str], **options: Any) -> Any:
        if how == "late":
            raise subprocess.TimeoutExpired(command, 1.0)
        return subprocess.CompletedProcess(command, how == "code", "", "Traceback\nWHY\n")

    monkeypatch.setattr(building("hatch_build").subprocess, "run", failing)
    data, said = built(building)
    assert data == {"force_include": {}}
    assert "without compiled functions" in said[-1]
    assert said[-1].endswith({"code": "WHY", "late": "timed out after 1.0 seconds", "nothing": ": "}[how])


def test_a_build_wants_what_it_runs(building: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    backend = building("backend")
    assert backend.get_requires_for_build_wheel() == ["hatchlings", *needed]
    assert backend.get_requires_for_build_editable() == ["hatchlings"]  # for tests: nothing is compiled a second time
    monkeypatch.setenv("BIGSVM_BUILD_CACHE", "none")
    assert backend.get_requires_for_build_wheel() == ["hatchlings"]


@pytest.mark.skipif(bool(lacks("x86-64-v3")), reason="nothing is compiled for this processor")
def test_each_processor_is_compiled_for_by_itself(
    building: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiling = building("compiled_cache")
    one = "import numpy as np; from bigsvm.compiled.shared.rows import sqnorms; sqnorms(np.ones((1, 1)), np.ones(1))"
    monkeypatch.setattr(compiling, "_WARM", one)
    assert compiling.fill(tmp_path / "out", ["demo"]) == 1  # of the plainest processor: its vectors are not wide
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".compiled", ".json"]
    assert (tmp_path / "out" / ABOUT).exists()
    monkeypatch.setattr(compiling, "_WARM", "raise SystemExit('WHY')")
    with pytest.raises(RuntimeError, match="WHY"):
        compiling.fill(tmp_path / "other", ["demo"])
    assert not (tmp_path / "other").exists()


def test_nothing_is_compiled_for_wide_vectors_where_no_loop_has_them(building: Any) -> None:
    """Its process would import for seconds, and compile nothing."""
    kernels = {use for case in CASES if dict(case.options).get("kernel") for use in case.uses}
    assert set(USES) - kernels == building("compiled_cache").WITHOUT_KERNELS


def test_an_old_processor_builds_a_wheel_without(
    building: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("bigsvm.compiled.cache.places.lacks", lambda level: ["avx2"])
    with pytest.raises(RuntimeError, match="this processor has no avx2"):
        building("compiled_cache").fill(tmp_path / "out", ["demo"])


def test_what_is_compiled_for_a_wheel_is_this_tree(building: Any) -> None:
    assert building("compiled_cache").ROOT == ROOT


def test_the_recipe_for_conda_is_that_of_pip() -> None:
    """Name, version, Python, requirements, what builds it, command, licence: each as in pyproject.toml."""
    pip = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, recipe = pip["project"], (ROOT / "scripts" / "building" / "conda" / "meta.yaml").read_text()
    lines = [line.strip() for line in recipe.splitlines()]

    def listed(key: str) -> list[str]:
        after = lines[lines.index(f"{key}:") + 1 :]
        return [line.removeprefix("- ") for line in takewhile(lambda line: line.startswith("- "), after)]

    on_conda = {"xxhash": "python-xxhash"}
    wanted = [f"python {project['requires-python']}"]
    for requirement in project["dependencies"]:
        name, extra, version = re.match(r"([\w-]+)(\[\w+\])?(.*)", requirement).groups()  # type: ignore[union-attr]
        wanted.append(f"{on_conda.get(name, name)} {version}")
        wanted += [f"{extra.strip('[]')} {version}"] if extra else []  # of dask: a package of its own
    assert listed("run") == wanted
    (builds,) = pip["build-system"]["requires"]
    assert listed("host") == [wanted[0], "pip", builds.replace(">=", " >=")]
    (command,) = project["scripts"].items()
    assert listed("entry_points") == [" = ".join(command)]
    for line in (f'version: "{project["version"]}"', f"name: {project['name']}", f"summary: {project['description']}",
                 f"license: {project['license']}", "path: ../../.."):  # fmt: skip
        assert line in lines
