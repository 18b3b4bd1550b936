"""Commands about the machine: doctor with its remedies, cache and completion."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bigsvm.cli.commands.machine.cache import COMPILED, USES
from bigsvm.cli.remedies import remedies
from bigsvm.compiled.cache.functions import SUFFIX
from bigsvm.compiled.cache.places import LEVELS, lacks, shipped
from bigsvm.compiled.cache.stamp import stamp
from bigsvm.files import paths
from bigsvm.run import warm
from tests.cli.conftest import Bigsvm


def test_doctor(bigsvm: Bigsvm) -> None:
    said = bigsvm("doctor", "--json")
    assert said.code == 0
    result = said.document["result"]
    assert result["cores"] >= 1
    assert result["memory"]["base_bytes"] > 0
    assert result["memory"]["default_budget_bytes"] < result["memory"]["limit_bytes"]
    assert "numpy" in result["versions"]
    assert result["missing"] == []
    assert "memory limit" in bigsvm("doctor").out


@pytest.mark.parametrize("base", [100 << 20, 300 << 20])
def test_doctor_prints_the_hints_of_its_json(bigsvm: Bigsvm, monkeypatch: pytest.MonkeyPatch, base: int) -> None:
    """The base is given: this process runs tests, and what it holds differs from one call to the next."""
    monkeypatch.setattr("bigsvm.cli.commands.machine.doctor._measured_base", lambda: base)
    hints = bigsvm("doctor", "--fix-hints", "--json").document["result"]["fix_hints"]
    assert all(set(hint) == {"problem", "fix"} for hint in hints)
    assert ("lower --memory by 44 MiB" in [hint["fix"] for hint in hints]) == (base > 256 << 20)
    said = bigsvm("doctor", "--fix-hints").out + "\n"
    for hint in hints:
        assert f"{hint['problem']}\n    {hint['fix']}\n" in said


def test_each_thing_that_stands_in_the_way_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIGSVM_CACHE", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "onnx" else name)
    memory = {
        "limit_bytes": 4 << 30,
        "limit_source": "cgroup",
        "base_bytes": 200 << 20,
        "default_budget_bytes": 1 << 30,
    }
    scratch = {"folder": str(tmp_path / "s"), "free_bytes": 9 << 30, "filesystem": "ext4"}
    well: dict[str, Any] = {"memory": memory, "scratch": scratch, "missing": []}
    optional = "optional, for bigsvm export MODEL OUT.onnx: onnx is not installed"
    assert [hint["problem"] for hint in remedies(well)] == [optional]
    for changed, problem, fix in (
        ({"missing": ["numba", "zarr"]}, "libraries are missing", "pip install numba zarr"),
        ({"memory": {**memory, "base_bytes": None}}, "ulimit -v", "ulimit -v unlimited"),
        ({"memory": {**memory, "base_bytes": 300 << 20}}, "more than 256 MiB", "lower --memory by 44 MiB"),
        ({"memory": {**memory, "default_budget_bytes": 64 << 20}}, "cgroup leaves a fit 64 MiB", "raise that limit"),
        ({"scratch": {**scratch, "filesystem": "tmpfs"}}, "is in memory (tmpfs)", "export BIGSVM_SCRATCH="),
        ({"scratch": {**scratch, "free_bytes": 5}}, "less than 1 GiB", "bigsvm cache clear"),
    ):
        first, *rest = remedies({**well, **changed})
        assert problem in first["problem"]
        assert first["fix"].startswith(fix)
        assert [hint["problem"] for hint in rest] == [optional]
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    unwritable = [hint["problem"] for hint in remedies(well)]
    assert len(unwritable) == 3
    assert "cannot be written" in unwritable[0]
    assert "nothing can be kept" in unwritable[1]


def test_a_cache_in_the_temporary_folder_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.delenv("BIGSVM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    memory = {"limit_source": "cgroup", "base_bytes": 1, "default_budget_bytes": 1 << 30}
    scratch = {"folder": str(tmp_path / "s"), "free_bytes": 9 << 30, "filesystem": "ext4"}
    first, *_ = remedies({"memory": memory, "scratch": scratch, "missing": []})
    assert "may empty" in first["problem"]
    assert first["fix"].startswith("export BIGSVM_CACHE=")
    own = tmp_path / f"bigsvm-{os.getuid()}"
    own.rmdir()
    own.touch()
    paths._writable_cache.cache_clear()
    first, *_ = remedies({"memory": memory, "scratch": scratch, "missing": []})
    assert "cannot be the cache folder" in first["problem"]
    assert first["fix"].startswith("export BIGSVM_CACHE=")


def test_doctor_says_the_base_whatever_is_optional(bigsvm: Bigsvm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a fit needs is missed; and no module is named that is not there."""
    import importlib.metadata

    def version(name: str) -> str:
        if name in ("scikit-learn", "xxhash"):
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    result = bigsvm("doctor", "--json").document["result"]
    assert result["memory"]["base_bytes"] > 0
    assert result["missing"] == ["xxhash"]
    assert "bigsvm.sklearn" not in bigsvm("doctor").out


def test_cache(bigsvm: Bigsvm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BIGSVM_CACHE", str(tmp_path / "cache"))
    kernels = tmp_path / "cache" / "bigsvm" / "kernels-0123"
    staged = tmp_path / "scratch" / "bigsvm" / "rows-0123"
    for folder in (kernels, staged):
        folder.mkdir(parents=True)
        (folder / "x").write_bytes(b"12345")
    for name in ("compile.lock", f"a-0{SUFFIX}", f"a-1{SUFFIX}"):
        (kernels / name).touch()
    result = bigsvm("cache", "info", "--json").document["result"]
    assert result["kernels"] == {"n": 2, "versions": 1, "bytes": 5}
    assert result["staged"] == {"n": 1, "bytes": 5}
    assert bigsvm("cache", "--json").document["result"] == result
    assert "2 functions of 1 installation, 5 B in" in bigsvm("cache").out
    assert bigsvm("cache", "clear").code == 0
    assert not kernels.exists()
    assert not staged.exists()


def test_cache_tells_of_a_folder_that_it_cannot_write(
    bigsvm: Bigsvm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usual, own = tmp_path / "home" / "bigsvm", tmp_path / f"bigsvm-{os.getuid()}"
    monkeypatch.delenv("BIGSVM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for folder in (usual, own):
        (folder / "manifests").mkdir(parents=True, mode=0o700)
        (folder / "manifests" / "a.json").write_bytes(b"12345")
    paths._writable_cache.cache_clear()
    (left,) = bigsvm("cache", "--json").document["result"]["others"]
    assert (left["cache"], left["read"], left["manifests"]["n"]) == (str(own), False, 1)
    can_make = paths.can_make
    monkeypatch.setattr(paths, "can_make", lambda folder: folder != usual and can_make(folder))
    paths._writable_cache.cache_clear()
    (only_read,) = bigsvm("cache", "--json").document["result"]["others"]
    assert (only_read["cache"], only_read["read"], only_read["manifests"]["n"]) == (str(usual), True, 1)
    assert f"1 document (read, not written), 0 functions (read), 5 B in {usual}" in bigsvm("cache").out
    rmtree = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", lambda path, **how: path.is_relative_to(usual) or rmtree(path, **how))
    assert f"{usual / 'manifests'} cannot be removed and stays" in bigsvm("cache", "clear").err
    assert not (own / "manifests").exists()


def test_cache_tells_what_came_with_the_installation(
    bigsvm: Bigsvm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BIGSVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("bigsvm.__file__", str(tmp_path / "__init__.py"))
    assert bigsvm("cache", "--json").document["result"]["shipped"] == {"n": 0, "processors": [], "why_not": None}
    assert "this installation was built without" in bigsvm("cache").out
    folder = tmp_path / "_compiled_cache"
    folder.mkdir()
    (folder / f"a-0{SUFFIX}").touch()
    said = bigsvm("cache").out
    assert "1 compiled function, not usable: about.json cannot be read" in said
    stamped = {"stamp": stamp(), "levels": [level for level in LEVELS if not lacks(level)]}
    (folder / "about.json").write_text(json.dumps(stamped))
    shipped.cache_clear()
    said = bigsvm("cache").out
    assert (" and ".join(stamped["levels"]) or "not usable") in said
    shipped.cache_clear()


def test_cache_warm(bigsvm: Bigsvm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each case; what was compiled once is not compiled again."""
    some = tuple(case for case in warm.CASES if case.uses == ("fit",) and case.layout == "dense")
    assert len(some) == 1
    monkeypatch.setattr(warm, "CASES", some)
    said = bigsvm("cache", "warm", "--for", "fit")
    assert said.code == 0
    assert f"1 of 1: {some[0].name}: done in" in said.err
    assert "kept in" in said.out
    result = bigsvm("cache", "warm", "--for", "fit", "--for", "demo", "--json").document["result"]
    assert (result["cases"], result["compiled"]) == (1, 0)
    assert bigsvm("cache", "warm", "--for", "certify", "--json").document["result"]["cases"] == 0
    assert bigsvm("cache", "warm", "--for", "nothing").code == 2
    assert (warm.USES, f"*{SUFFIX}") == (USES, COMPILED)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(bigsvm: Bigsvm, shell: str) -> None:
    said = bigsvm("completion", shell)
    assert said.code == 0
    assert "_BIGSVM_COMPLETE" in said.out
