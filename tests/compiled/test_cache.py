"""The caches of compiled functions: what is in them is used, and what is not exactly that never is."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import pickle
import pkgutil
import shutil
import subprocess
import sys
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
from bigsvm.compiled.cache.places import ABOUT, LEVELS, Shipped, cache_folder, lacks, shipped
from bigsvm.compiled.cache.shipping import gather
from bigsvm.compiled.cache.stamp import digest_of
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


def kept() -> list[Path]:
    """The files of the user's cache."""
    return sorted(cache_folder().glob("*"))


# ---- what came with the installation


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


def the_file(folder: Path) -> Path:
    return next(folder.glob(f"*{SUFFIX}"))


def cut(n: int) -> Callable[[Path, pytest.MonkeyPatch], None]:
    def change(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        content = the_file(folder).read_bytes()
        the_file(folder).write_bytes(content[: n if n >= 0 else len(content) + n])

    return change


def flip(place: int) -> Callable[[Path, pytest.MonkeyPatch], None]:
    def change(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        content = bytearray(the_file(folder).read_bytes())
        content[place] ^= 1
        the_file(folder).write_bytes(content)

    return change


def other_sources(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the pig does not name was edited: pigs may take in its code."""
    copy = folder.parent / "sources"
    shutil.copytree(stamp.SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    edited = copy / "shared" / "losses.py"
    edited.write_text(edited.read_text() + "\n")
    monkeypatch.setattr(stamp, "SOURCES", copy)


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
        __module__=module, __qualname__="f", __closure__=None, __code__=test_no_sources_no_cache.__code__
    )
    FunctionCache(function)._found("sig", ("triple", "host", "+avx"))  # type: ignore[arg-type]
    assert looked == (["x86-64-v4", "host"] if "kernel" in module else [*LEVELS, "host"])


# ---- the user's own


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
