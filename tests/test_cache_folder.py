"""Where the cache folder is, and what is said if it cannot be written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csc_matrix

from bigsvm.cli.remedies import _of_cache
from bigsvm.compiled.cache import places
from bigsvm.errors import OutputError
from bigsvm.files import paths
from bigsvm.store.formats.opener import open_store
from bigsvm.store.sealing.seal import load_or_make_manifest
from tests.store import formats

X, LABELS = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
FORMS = ["zarr", "parquet", "csv", "h5ad", "columns.h5ad"]


def written(form: str, path: Path) -> Path:
    """A store or file of which something is remembered in the cache folder."""
    path = path.with_suffix(f".{form}")
    if form == "columns.h5ad":
        pytest.importorskip("h5py")
        return Path(formats.anndata(path, {"X": csc_matrix(X), "obs/label": (LABELS.astype(np.int8), ["a", "b"])}))
    if form == "zarr":
        formats.written(path, X, LABELS)
        (path / "bigsvm-manifest.json").unlink()
    elif form == "parquet":
        formats.parquet(path, X, LABELS)
    elif form == "csv":
        np.savetxt(path, np.column_stack((LABELS, X)), delimiter=",", header="label,a,b", comments="")
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            file["X"], file["obs/label"] = X, LABELS
    return path


@pytest.mark.parametrize("form", FORMS)
def test_a_cache_folder_that_cannot_be_made_is_told_with_the_remedy(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(form, tmp_path / "a")
    (tmp_path / "file").touch()
    monkeypatch.setenv("BIGSVM_CACHE", str(tmp_path / "file"))
    with pytest.raises(OutputError, match=r"cannot make the cache folder.*set BIGSVM_CACHE"):
        open_store(path)


NO_HOME = {
    "no home": {"HOME": None, "XDG_CACHE_HOME": None},
    "a home that cannot be written": {"HOME": "{}/file", "XDG_CACHE_HOME": None},
    "a cache that cannot be written": {"HOME": "{}", "XDG_CACHE_HOME": "{}/file"},
    "a relative home": {"HOME": "home", "XDG_CACHE_HOME": None},
}


@pytest.fixture(params=NO_HOME)
def homeless(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's temporary folder, and the working directory, of somebody who has no place for a cache."""
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    monkeypatch.delenv("BIGSVM_CACHE", raising=False)
    for name, value in NO_HOME[request.param].items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value.format(tmp_path))

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path / "tmp")
    places._usable.cache_clear()
    return tmp_path / "tmp"


@pytest.mark.parametrize("form", FORMS)
def test_without_a_home_the_cache_is_in_the_temporary_folder(form: str, homeless: Path) -> None:
    path = written(form, homeless / "a")
    first = open_store(path).identity
    own = homeless / f"bigsvm-{os.getuid()}"
    assert any((own / "manifests").iterdir())
    assert own.stat().st_mode & 0o777 == 0o700
    assert open_store(path).identity == first
    assert places.cache_folder().parent == own
    assert {each.name for each in homeless.iterdir()} == {path.name, own.name}


def test_both_caches_share_the_folder_whatever_the_umask(homeless: Path) -> None:
    before = os.umask(0)
    try:
        compiled = places.cache_folder()
    finally:
        os.umask(before)
    paths._writable_cache.cache_clear()
    assert paths.cache_folder() == compiled.parent


def test_a_folder_of_somebody_else_is_no_cache(homeless: Path) -> None:
    """Whoever can write its documents can tell what rows are in a file."""
    path = written("csv", homeless / "a")
    own = homeless / f"bigsvm-{os.getuid()}"
    (homeless / "other").mkdir(mode=0o700)
    for make in (lambda: own.mkdir() or own.chmod(0o777), lambda: own.symlink_to(homeless / "other"), own.touch):
        make()
        paths._writable_cache.cache_clear()
        with pytest.raises(OutputError, match=r"cache folder.*set BIGSVM_CACHE"):
            open_store(path)
        own.unlink() if own.is_symlink() or own.is_file() else own.rmdir()


@pytest.fixture
def unwritable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Makes the usual cache folder one that cannot be written, by root either; returns the folder that is written."""
    usual = tmp_path / "home" / ".cache" / "bigsvm"
    monkeypatch.delenv("BIGSVM_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    usual.mkdir(parents=True)
    can_make = paths.can_make
    paths._writable_cache.cache_clear()

    def lock() -> Path:
        monkeypatch.setattr(paths, "can_make", lambda folder: folder != usual and can_make(folder))
        paths._writable_cache.cache_clear()
        return paths.cache_folder()

    return lock


def filled(form: str, path: Path) -> Path:
    """A store or file that was opened once."""
    path = written(form, path)
    open_store(path)
    return path


def known(folder: Path) -> set[str]:
    """What is remembered in a cache folder."""
    return {each.name for each in (folder / "manifests").glob("*") if each.suffix != ".lock"}


@pytest.mark.parametrize("form", FORMS)
def test_a_cache_that_cannot_be_written_any_more_is_read(
    form: str, tmp_path: Path, unwritable: Callable[[], Path]
) -> None:
    path = filled(form, tmp_path / "a")
    usual = paths.cache_folder()
    before = known(usual)
    assert before
    cache = unwritable()
    assert cache.parent == tmp_path / "tmp"
    open_store(path)
    assert known(cache) == set()
    open_store(path.rename(path.with_stem("b")))
    assert known(cache)  # what is new goes to the folder that can be written
    assert known(usual) == before


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("which", ["folder", "files"])
def test_what_others_may_write_is_not_read(
    form: str, which: str, tmp_path: Path, unwritable: Callable[[], Path]
) -> None:
    path = filled(form, tmp_path / "a")
    folder = paths.cache_folder() / "manifests"
    for each in [folder] if which == "folder" else folder.rglob("*"):
        each.chmod(0o777)
    cache = unwritable()
    open_store(path)
    assert known(cache) == known(folder.parent)


def test_a_file_that_changed_is_read_anew(tmp_path: Path, unwritable: Callable[[], Path]) -> None:
    path = filled("csv", tmp_path / "a")
    cache = unwritable()
    with path.open("a") as file:
        file.write("1,2,3\n")
    assert open_store(path).n_samples == len(X) + 1
    assert known(cache)


def test_parts_that_others_may_write_are_not_read(
    tmp_path: Path, unwritable: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written("zarr", tmp_path / "a")
    monkeypatch.setattr("bigsvm.store.sealing.manifest.PART_CHUNKS", 1)
    load_or_make_manifest(path)
    _, second, *_ = sorted((paths.cache_folder() / "manifests").glob("*-*.json"))
    unwritable()
    assert not load_or_make_manifest(path)[1]
    second.chmod(0o666)
    assert load_or_make_manifest(path)[1]


def test_what_a_user_states_is_recorded_in_the_folder_that_is_written(
    tmp_path: Path, unwritable: Callable[[], Path]
) -> None:
    path = written("zarr", tmp_path / "a")
    load_or_make_manifest(path)
    cache = unwritable()
    assert not load_or_make_manifest(path)[0].vouched
    assert known(cache) == set()
    assert load_or_make_manifest(path, "zeros")[0].vouched
    manifest, made = load_or_make_manifest(path)
    assert manifest.vouched
    assert not made


def test_doctor_tells_whether_the_usual_cache_is_read(tmp_path: Path, unwritable: Callable[[], Path]) -> None:
    filled("csv", tmp_path / "a")
    folder = paths.cache_folder() / "manifests"
    unwritable()
    assert _of_cache()[0][0].endswith(f"; {folder.parent} is only read")
    folder.chmod(0o777)
    assert "is not read: others than its owner may write it" in _of_cache()[0][0]
