"""Where the cache folder is, and what is said if it cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from bigsvm.compiled.cache import places
from bigsvm.errors import OutputError
from bigsvm.files import paths
from bigsvm.store.formats.opener import open_store
from tests.store import formats

X, LABELS = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
FORMS = ["zarr", "parquet", "csv", "h5ad"]


def written(form: str, path: Path) -> Path:
    """A store or file of which something is remembered in the cache folder."""
    path = path.with_suffix(f".{form}")
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
