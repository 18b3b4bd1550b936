"""The cache of compiled functions that an installation ships: what is in it is used, and what is wrong never is."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bigsvm.compiled
from bigsvm.compiled.cache import functions, places, stamp
from bigsvm.compiled.cache.functions import SUFFIX, FunctionCache
from bigsvm.compiled.cache.places import ABOUT, LEVELS, Shipped, lacks, shipped
from bigsvm.compiled.cache.shipping import gather
from tests.compiled.cached_files import cut, flip, kept, other_sources, the_file
from tests.guinea_pig import Pig, place

PACKAGE = Path(bigsvm.__file__).parent
V3 = "x86-64-v3"
__all__ = ["place"]

needs_v3 = pytest.mark.skipif(bool(lacks(V3)), reason=f"this processor is no {V3}")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel would ship of the pig, as a build makes it."""
    folder = tmp_path_factory.mktemp("build")
    program = "import sys; from pathlib import Path; from tests.guinea_pig import Pig; Pig(Path(sys.argv[1]))(2)"
    of_build = {"NUMBA_CPU_NAME": V3, "NUMBA_CPU_FEATURES": "", "BIGSVM_CACHE": str(folder / "user")}
    root = os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        env={**os.environ, **of_build, "PYTHONPATH": root}, cwd=PACKAGE.parent, check=True,
    )  # fmt: skip
    assert gather({V3: folder / "user"}, folder / "shipped") == 1
    return folder / "shipped"


def install(filled: Path) -> Path:
    """The filled cache as an installation has it."""
    shutil.copytree(filled, places.SHIPPED)
    return places.SHIPPED


@needs_v3
def test_what_is_shipped_is_used(place: Path, filled: Path) -> None:
    """On any processor of the level, under its own name; nothing is written anywhere."""
    before = {path.name: path.read_bytes() for path in install(filled).iterdir()}
    pig = Pig(place)
    assert (pig(2), pig.compiled) == (4, 0)
    assert kept() == []
    assert {path.name: path.read_bytes() for path in places.SHIPPED.iterdir()} == before
    assert shipped(places.SHIPPED) == Shipped((V3,))
    assert (pig(2.5), pig.compiled) == (5.0, 1)  # of other types there is nothing
    assert len(kept()) == 1


def other_stamp(name: str) -> Callable[[Path, pytest.MonkeyPatch], None]:
    def change(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        about = json.loads((folder / ABOUT).read_text())
        about["stamp"][name] = "0.0"
        (folder / ABOUT).write_text(json.dumps(about))

    return change


def here_is_another(name: str) -> Callable[[Path, pytest.MonkeyPatch], None]:
    """The installed version is another one, whatever the folder says of itself."""

    def change(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        here = {**stamp.stamp(), name: "0.0"}
        about = json.loads((folder / ABOUT).read_text())
        (folder / ABOUT).write_text(json.dumps({**about, "stamp": here}))
        monkeypatch.setattr(places, "stamp", lambda: here)
        monkeypatch.setattr(stamp, "stamp", lambda: here)

    return change


def no_about(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ABOUT).unlink()


def torn_about(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ABOUT).write_text('{"stamp": ')


def no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    the_file(folder).unlink()


def mode_of(which: Callable[[Path], Path], mode: int) -> Callable[[Path, pytest.MonkeyPatch], None]:
    return lambda folder, monkeypatch: which(folder).chmod(mode)


def other_owner(which: Callable[[Path], Path]) -> Callable[[Path, pytest.MonkeyPatch], None]:
    def change(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        if os.geteuid() == 0:
            os.chown(which(folder), 12345, -1)
        else:
            monkeypatch.setattr(places, "owner_of_installation", lambda: (12345,))

    return change


def old_processor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "lacks", lambda level: ["avx2", "fma"])


def another_processor_is_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places.numba_config, "CPU_FEATURES", "")


WRONG: dict[str, tuple[Callable[[Path, pytest.MonkeyPatch], None], str]] = {
    **{f"for another {name}": (other_stamp(name), f"for {name} 0.0, and here is") for name in
       ("numba", "llvmlite", "llvm", "numpy", "python", "machine", "settings")},
    "for other sources": (other_stamp("sources"), "of other source files"),
    **{f"planted for this {name}": (here_is_another(name), "") for name in ("numba", "llvmlite", "numpy", "python")},
    "a source was edited": (other_sources, "of other source files"),
    "about is not there": (no_about, "cannot be read"),
    "about is torn": (torn_about, "cannot be read"),
    "the file is not there": (no_file, ""),
    "the file is empty": (cut(0), ""),
    "the file is cut in its head": (cut(40), ""),
    "the file is cut": (cut(-1), ""),
    "a bit of the head": (flip(40), ""),
    "a bit of the code": (flip(-100), ""),
    "anybody may write the folder": (mode_of(lambda folder: folder, 0o777), "others than its owner may write it"),
    "anybody may write the file": (mode_of(the_file, 0o646), ""),
    "anybody may write about": (mode_of(lambda folder: folder / ABOUT, 0o646), "cannot be read"),
    "the folder is another's": (other_owner(lambda folder: folder), "it belongs to user"),
    "the file is another's": (other_owner(the_file), ""),
    "an old processor": (old_processor, "this processor has no avx2, fma"),
    "another processor": (another_processor_is_asked_for, "asks for another processor"),
}  # fmt: skip


@needs_v3
@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_compiled_anew(place: Path, filled: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Into the user's cache, to the right answer; and where nothing shipped is of use, a line says why."""
    change, why_not = WRONG[what]
    change(install(filled), monkeypatch)
    monkeypatch.setattr(functions.pickle, "loads", lambda content: pytest.fail("it was read"))
    pig = Pig(place)
    assert (pig(2), pig.compiled) == (4, 1)
    assert [path.suffix for path in kept()] == [SUFFIX]
    said = shipped(places.SHIPPED).why_not
    assert said == "" if not why_not and "another's" not in what else why_not in said


@needs_v3
def test_code_that_somebody_planted_is_not_run(place: Path, filled: Path) -> None:
    """Whole, with the right head and digest, where anybody may write: the digest is against accidents alone."""
    folder = install(filled)
    content = the_file(folder).read_bytes()
    head = content[: content.index(b"\n", content.index(b"\n") + 1) + 1]

    class Planted:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(place / "planted"),)

    code = pickle.dumps(Planted())
    the_file(folder).write_bytes(head + functions.hashlib.sha256(code).digest() + code)
    the_file(folder).chmod(0o666)
    pig = Pig(place)
    assert (pig(2), pig.compiled) == (4, 1)
    assert not (place / "planted").exists()


@pytest.mark.parametrize("module", ["bigsvm.compiled.kernel.values.gram", "bigsvm.compiled.linear.primal"])
def test_wide_vectors_are_taken_for_the_best_processor_only(
    place: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    looked: list[str] = []
    monkeypatch.setattr(places, "shipped", lambda folder: Shipped(tuple(LEVELS)))
    monkeypatch.setattr(functions, "best_level", lambda: "x86-64-v4")
    monkeypatch.setattr(
        functions, "_read", lambda path, head, sig, owners: looked.append(json.loads(head.split(b"\n")[1])["target"][1])
    )
    function = SimpleNamespace(
        __module__=module, __qualname__="f", __closure__=None, __code__=test_what_is_shipped_is_used.__code__
    )
    FunctionCache(function)._found("sig", ("triple", "host", "+avx"))  # type: ignore[arg-type]
    assert looked == (["x86-64-v4", "host"] if "kernel" in module else [*LEVELS, "host"])
