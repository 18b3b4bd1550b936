"""The user's cache of compiled functions: what is in it is used, what is not exactly that is not, and all are in it."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from numba.core.dispatcher import Dispatcher

import bigsvm.compiled
from bigsvm.compiled.cache import functions, places, stamp, trust
from bigsvm.compiled.cache.functions import SUFFIX, FunctionCache, NotCompiled, loading_only
from bigsvm.compiled.cache.places import cache_folder
from bigsvm.compiled.cache.stamp import digest_of
from tests.compiled.cached_files import cut, flip, kept, other_sources
from tests.guinea_pig import Pig, place

PACKAGE = Path(bigsvm.__file__).parent
__all__ = ["place"]


def test_what_was_compiled_is_loaded_the_next_time(place: Path) -> None:
    first, second = Pig(place), Pig(place)
    assert (first(2), first.compiled) == (4, 1)
    assert (second(2), second.compiled) == (4, 0)
    assert (second(2.5), second.compiled) == (5.0, 1)
    assert [path.suffix for path in kept()] == [SUFFIX, SUFFIX]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in kept())
    assert cache_folder().stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", [cut(0), cut(40), cut(-1), flip(40), flip(-100)])
def test_damage_is_compiled_over(place: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[..., None]) -> None:
    Pig(place)(2)
    damage(cache_folder(), monkeypatch)
    again, then = Pig(place), Pig(place)
    assert (again(2), again.compiled) == (4, 1)
    assert (then(2), then.compiled) == (4, 0)


def test_functions_of_one_name_keep_apart(place: Path) -> None:
    """In two files, on the same line, with other code or other constants."""
    assert [Pig(place, more=0, name="one")(2), Pig(place, more=7, name="other")(2)] == [4, 11]
    again = Pig(place, more=0, name="one"), Pig(place, more=7, name="other")
    assert [pig(2) for pig in again] == [4, 11]
    assert [pig.compiled for pig in again] == [0, 0]


def test_functions_of_one_line_keep_apart(place: Path) -> None:
    """That are the same but for what they were closed over."""
    decorated = importlib.import_module("bigsvm.compiled.shared.compile").njit(cache=True)
    for _ in range(2):
        plus = [decorated(lambda x, more=None, by=by: x + by) for by in (1, 2)]
        assert [f(1) for f in plus] == [2, 3]

    def adding(by: int) -> Any:
        return decorated(lambda x: x + by)

    for _ in range(2):
        assert [adding(by)(1) for by in (1, 2)] == [2, 3]


def test_equal_sources_share_wherever_and_whenever_they_are(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "a.py").write_text("A")
        (tmp_path / name / "deep" / "b.py").write_text("B")
    os.utime(tmp_path / "there" / "a.py", (1, 1))
    assert digest_of(tmp_path / "here") == digest_of(tmp_path / "there")
    digests = {digest_of(tmp_path / "here")}
    for change in ("AB", "B"):
        digest_of.cache_clear()
        (tmp_path / "here" / "a.py").write_text(change)
        digests.add(digest_of(tmp_path / "here"))
    (tmp_path / "here" / "a.py").rename(tmp_path / "here" / "c.py")
    digest_of.cache_clear()
    digests.add(digest_of(tmp_path / "here"))
    assert len(digests) == 4
    digest_of.cache_clear()


def test_an_edited_source_is_compiled_anew(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Pig(place)(2)
    other_sources(place / "shipped", monkeypatch)
    pig = Pig(place)
    assert (pig(2), pig.compiled) == (4, 1)


def test_no_sources_no_cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an installation whose source files cannot be read nothing can be told."""
    monkeypatch.setattr(stamp, "SOURCES", place / "nowhere")
    for _ in range(2):
        pig = Pig(place)
        assert (pig(2), pig.compiled) == (4, 1)
    assert kept() == []


def test_a_cache_that_cannot_be_written_any_more_is_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Pig(place)(2)
    usual, access = cache_folder(), os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not Path(path).is_relative_to(usual) and access(path, mode))
    monkeypatch.setattr(places.tempfile, "gettempdir", lambda: str(place / "tmp"))
    places._usable.cache_clear()
    pig = Pig(place)
    assert (pig(2), pig.compiled) == (4, 0)
    assert (pig(2.5), pig.compiled) == (5.0, 1)
    assert cache_folder().is_relative_to(place / "tmp")
    assert len(kept()) == 1
    usual.chmod(0o777)
    again = Pig(place)
    assert (again(2), again.compiled) == (4, 1)


def test_a_folder_that_others_may_write_is_not_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places.tempfile, "gettempdir", lambda: str(place / "tmp"))
    usual = cache_folder()
    assert usual.is_relative_to(place / "user")
    usual.chmod(0o777)
    places._usable.cache_clear()
    other = cache_folder()
    assert other.is_relative_to(place / "tmp")
    other.chmod(0o777)
    places._usable.cache_clear()
    alone = cache_folder()
    assert alone not in (usual, other)
    assert alone.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(alone)


def test_where_nothing_can_be_written_the_temporary_folder_will_do(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "file").touch()
    monkeypatch.setenv("BIGSVM_CACHE", str(place / "file"))
    monkeypatch.setattr(places.tempfile, "gettempdir", lambda: str(place / "tmp"))
    assert cache_folder().parent == place / "tmp" / f"bigsvm-{os.getuid()}"


@pytest.mark.parametrize(
    ("mode", "owner", "group", "members", "believed"),
    [
        (0o600, 1, "u", [], True),
        (0o644, 1, "u", [], True),
        (0o646, 1, "u", [], False),
        (0o664, 1, "u", [], True),  # a group of one's own lets nobody in
        (0o664, 1, "u", ["u"], True),
        (0o664, 1, "u", ["u", "v"], False),
        (0o664, 1, "staff", [], False),
        (0o644, 2, "u", [], False),
        (0o644, 0, "root", [], True),
    ],
)
def test_what_others_than_the_owner_may_write_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, group: str, members: list[str], believed: bool
) -> None:
    monkeypatch.setattr(trust.pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name="u", pw_gid=7))
    monkeypatch.setattr(trust.grp, "getgrgid", lambda gid: SimpleNamespace(gr_name=group, gr_gid=7, gr_mem=members))
    status: Any = SimpleNamespace(st_mode=mode, st_uid=owner, st_gid=7)
    assert (trust.why_not(status, (1,)) == "") is believed


def test_what_cannot_be_kept_is_compiled_all_the_same(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(functions.os, "replace", full)
    pig = Pig(place)
    assert (pig(2), pig.compiled) == (4, 1)
    assert kept() == []


def test_writers_of_one_file_do_not_meet(place: Path) -> None:
    """Readers find the whole of one of them."""
    path, contents = place / "one", {bytes([i]) * 100_000 for i in range(4)}
    functions._write(path, min(contents))
    threads = [
        threading.Thread(target=functions._write, args=(path, content)) for content in contents for _ in range(5)
    ]
    for thread in threads:
        thread.start()
        assert path.read_bytes() in contents
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert [found.name for found in place.glob("new-*")] == []


def test_nothing_is_compiled_where_only_loading_is_allowed(place: Path) -> None:
    pig = Pig(place)
    with pytest.raises(NotCompiled, match="twice"), loading_only():
        pig(2)
    assert (pig(2), pig.compiled) == (4, 1)
    with loading_only():
        assert Pig(place)(2) == 4
        elsewhere = Pig(place)  # what another thread does meanwhile is its own affair
        thread = threading.Thread(target=elsewhere, args=(2.5,))
        thread.start()
        thread.join()
        assert elsewhere.function(2.5) == 5.0


# ---- the house


def test_every_compiled_function_is_in_this_cache() -> None:
    found = 0
    for module in pkgutil.walk_packages(bigsvm.compiled.__path__, "bigsvm.compiled."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, Dispatcher) and value.py_func.__module__ == module.name:
                assert isinstance(value._cache, FunctionCache), f"{module.name}.{name}"
                found += 1
    assert found > 60


def test_nothing_is_compiled_elsewhere() -> None:
    """The stamp has the files of `bigsvm/compiled` only."""
    clock = {"numba.core"}  # numba's events, which say when it begins and ends
    known = {"run/fit/fit.py": {"numba"}, "store/ingest/compile_time.py": clock, "compile_in_child.py": clock}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        imported = {
            module
            for node in ast.walk(ast.parse(path.read_text()))
            for module in (
                [alias.name for alias in node.names] if isinstance(node, ast.Import)
                else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            )
            if module.partition(".")[0] in ("numba", "llvmlite")
        }  # fmt: skip
        assert name.startswith("compiled/") or imported == known.get(name, set()), name
