"""Kernel models on disk: the round trip is exact, pieces are written as they come, damage is refused."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.compiled.shared.rows import CSR, take_rows
from bigsvm.errors import BigSVMError, DataError, OutputError
from bigsvm.files.file_array import FileArray
from bigsvm.model import model_files
from bigsvm.model import support as supporting
from bigsvm.model.kernel_model import KernelModel, _from_home
from bigsvm.model.linear_model import load_alpha, load_model
from bigsvm.model.support import SupportPieces
from bigsvm.problem.kernel import Kernel
from tests.model_documents import read, renew, rewrite
from tests.problem.svc_models import KERNELS, labels, rows, svc, svr, to_csr

D = 6
EVERY = ["dense", "csr", "precomputed", "regression", "pairs"]


def make(kind: str, dtype: Any = np.float64) -> KernelModel:
    """A model of one of the kinds of EVERY."""
    X = rows(dtype=dtype)
    if kind == "precomputed":
        return svc(KERNELS["rbf"].matrix(X, X), labels(X, 2), Kernel("precomputed"), len(X))[1]
    if kind == "regression":
        return svr(X, X[:, 0] - X[:, 1], KERNELS["rbf"], D)[1]
    return svc(X, labels(X, 3 if kind == "pairs" else 2), KERNELS["rbf"], D, "csr" if kind == "csr" else "dense")[1]


def arrays_of(model: KernelModel) -> dict[str, np.ndarray]:
    found = {name: getattr(model, name) for name in ("support_rows", "dual_coef", "intercept", "positive", "negative")}
    if isinstance(model.support, CSR):
        found |= model.support._asdict()
    elif model.support is not None:
        found["support"] = model.support
    return found


def assert_same(one: KernelModel, other: KernelModel) -> None:
    assert (one.kernel, one.n_features) == (other.kernel, other.n_features)
    assert one.classes.tolist() == other.classes.tolist()
    ours, theirs = arrays_of(one), arrays_of(other)
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        assert array.dtype == theirs[name].dtype, name
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


@pytest.mark.parametrize("kind", EVERY)
def test_round_trip_is_exact(tmp_path: Path, kind: str) -> None:
    made, alpha = make(kind), np.random.default_rng(2).standard_normal((3 if kind == "pairs" else 1, 90))
    made.save(tmp_path / "m", alpha)
    back = load_model(tmp_path / "m")
    assert isinstance(back, KernelModel)
    assert_same(made, back)
    assert back.about["problem"]["kernel"] == made.kernel.document()
    assert back.about["problem"]["loss"] == "hinge"
    np.testing.assert_array_equal(load_alpha(tmp_path / "m", back), alpha)
    new = KERNELS["rbf"].matrix(rows(30, seed=4), rows()) if kind == "precomputed" else rows(30, seed=4)
    np.testing.assert_array_equal(back.predict(new), made.predict(new))
    np.testing.assert_array_equal(back.scores(new), made.scores(new))
    back.save(tmp_path / "again", load_alpha(tmp_path / "m", back))
    names = sorted(path.name for path in (tmp_path / "m").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "again").iterdir())
    for name in set(names) - {"model.json"}:
        assert (tmp_path / "m" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_the_datas_dtype_is_kept(tmp_path: Path, dtype: Any) -> None:
    for support in (np.arange(24, dtype=dtype).reshape(4, D), to_csr(np.arange(24).reshape(4, D).astype(dtype))):
        made = KernelModel(
            Kernel("rbf", 0.01), support, np.array([1, 2, 5, 9]), np.ones((1, 4)), np.ones(1), np.array([0, 1]), D
        )
        made.save(tmp_path / "m", overwrite=True)
        assert_same(made, load_model(tmp_path / "m"))


def test_arrays_stay_in_files_and_pickle_as_their_folder(tmp_path: Path) -> None:
    make("csr").save(tmp_path / "m")
    back = load_model(tmp_path / "m")
    for array in (*back.support, back.dual_coef, back.support_rows):
        assert isinstance(array, FileArray)
    text = pickle.dumps(back)
    assert len(text) < 1000
    there = pickle.loads(text)
    assert_same(back, there)
    assert pickle.loads(text) is there  # opened once in a process
    # What was changed is no longer what lies in the folder.
    changed = dataclasses.replace(back, intercept=back.intercept + 1.0)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(changed)).intercept, back.intercept + 1.0)
    make("dense").save(tmp_path / "m", overwrite=True)
    _from_home.cache_clear()  # as in another process
    with pytest.raises(DataError, match="changed since"):
        pickle.loads(text)


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_pieces_are_written_to_the_same_bytes(tmp_path: Path, layout: str) -> None:
    made = make(layout)
    n = made.n_support
    made.save(tmp_path / "whole")

    def pieces() -> Iterator[Any]:
        for start, stop in ((0, 1), (1, 1), (1, 7), (7, n)):
            yield take_rows(made.support, start, stop)

    given = dataclasses.replace(made, support=SupportPieces(layout, np.dtype(np.float64), pieces))
    given.save(tmp_path / "pieces")
    assert_same(load_model(tmp_path / "pieces"), made)
    new = rows(20, seed=3)
    np.testing.assert_allclose(given.scores(new), made.scores(new), rtol=1e-13)
    short = dataclasses.replace(given, support_rows=np.arange(n + 1), dual_coef=np.ones((1, n + 1)))
    with pytest.raises(ValueError, match=f"{n} support vectors were given for {n + 1}"):
        short.save(tmp_path / "short")
    assert not (tmp_path / "short").exists()


def test_an_existing_model_is_kept_unless_overwrite(tmp_path: Path) -> None:
    make("dense").save(tmp_path / "m")
    with pytest.raises(OutputError, match="exists"):
        make("csr").save(tmp_path / "m")
    make("csr").save(tmp_path / "m", overwrite=True)
    assert not (tmp_path / "m" / "support.npy").exists()


def files_of(kind: str) -> list[str]:
    shared = ["dual_coef.npy", "intercept.npy", "support_rows.npy"]
    return [*shared, *({"dense": supporting.DENSE, "csr": supporting.SPARSE}.get(kind, ()))]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in ("dense", "csr") for name in files_of(kind)])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_is_refused_by_name(tmp_path: Path, kind: str, name: str, damage: str) -> None:
    make(kind).save(tmp_path / "m")
    path = tmp_path / "m" / name
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-3] ^= 1
        path.write_bytes(content)
    elif damage == "truncate":
        path.write_bytes(content[:-4])
    else:
        path.unlink()
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        load_model(tmp_path / "m")


def change(folder: Path, name: str, array: np.ndarray) -> None:
    """Another array, with its digest."""
    with open(folder / name, "wb") as file:
        np.save(file, array)
    renew(folder, name)


Bad = Callable[[np.ndarray], np.ndarray]


def next_to_each_other(indices: np.ndarray, given: list[int]) -> np.ndarray:
    """Of the first two features that ascend in a row: others, by their places."""
    k = int(np.flatnonzero(np.diff(indices) > 0)[0])
    return np.concatenate([indices[:k], indices[k : k + 2][given], indices[k + 2 :]])


BAD_ARRAYS: list[tuple[str, str, Bad]] = [
    ("dense", "support.npy", lambda a: a[:-1]),
    ("dense", "support.npy", lambda a: a[:, :-1]),
    ("dense", "support.npy", lambda a: np.asfortranarray(a)),
    ("dense", "support.npy", lambda a: a.astype(">f8")),
    ("dense", "support.npy", lambda a: a.astype(np.float16)),
    ("dense", "support.npy", lambda a: np.where(a == a.max(), np.nan, a)),
    ("dense", "dual_coef.npy", lambda a: a[:, 1:]),
    ("dense", "dual_coef.npy", lambda a: np.vstack([a, a])),
    ("dense", "dual_coef.npy", lambda a: a.astype(np.float32)),
    ("dense", "dual_coef.npy", lambda a: np.full_like(a, np.inf)),
    ("pairs", "dual_coef.npy", lambda a: np.asfortranarray(a)),
    ("dense", "intercept.npy", lambda a: np.array([np.nan])),
    ("dense", "intercept.npy", lambda a: np.zeros(2)),
    ("dense", "support_rows.npy", lambda a: a[::-1]),
    ("dense", "support_rows.npy", lambda a: np.zeros_like(a)),
    ("dense", "support_rows.npy", lambda a: a - 1000),
    ("dense", "support_rows.npy", lambda a: a.astype(np.int32)),
    ("dense", "support_rows.npy", lambda a: a[:, None]),
    ("precomputed", "support_rows.npy", lambda a: a + 90),
    ("csr", "support_indptr.npy", lambda a: a[::-1]),
    ("csr", "support_indptr.npy", lambda a: a[:-1]),
    ("csr", "support_indptr.npy", lambda a: a + 1),
    ("csr", "support_indptr.npy", lambda a: np.concatenate([a[:2], a[1:2] - 1, a[3:]])),
    ("csr", "support_indptr.npy", lambda a: a[np.r_[:3, 4, 3, 5 : len(a)]]),
    ("csr", "support_indptr.npy", lambda a: a.astype(np.int32)),
    ("csr", "support_indices.npy", lambda a: a + D),
    ("csr", "support_indices.npy", lambda a: a - D),
    ("csr", "support_indices.npy", lambda a: np.zeros_like(a)),
    ("csr", "support_indices.npy", lambda a: next_to_each_other(a, [0, 0])),
    ("csr", "support_indices.npy", lambda a: next_to_each_other(a, [1, 0])),
    ("csr", "support_indices.npy", lambda a: a[:-1]),
    ("csr", "support_indices.npy", lambda a: a.astype(np.float64)),
    ("csr", "support_data.npy", lambda a: a[:-1]),
    ("csr", "support_data.npy", lambda a: np.where(a == a.max(), np.inf, a)),
    ("csr", "support_data.npy", lambda a: a.astype(object)),
]


@pytest.mark.parametrize(("kind", "name", "bad"), BAD_ARRAYS)
def test_arrays_that_make_no_model_are_refused(tmp_path: Path, kind: str, name: str, bad: Bad) -> None:
    make(kind).save(tmp_path / "m")
    change(tmp_path / "m", name, bad(np.load(tmp_path / "m" / name)))
    with pytest.raises(DataError):
        load_model(tmp_path / "m")


BAD_DOCUMENTS: list[dict[str, Any]] = [
    {"n_features": 7}, {"n_features": 0}, {"n_features": True}, {"n_features": 2**63}, {"n_features": "6"},
    {"digests": {}}, {"digests": []}, {"classes": [1]}, {"classes": []}, {"classes": [0, 1, 2]}, {"classes": None},
    {"problem": []}, {"problem": {}}, {"problem": {"kernel": "rbf"}}, {"problem": {"kernel": {"name": "rbf", "x": 1}}},
    {"problem": {"kernel": {"name": "other"}}}, {"problem": {"kernel": {"name": "rbf", "gamma": "1"}}},
    {"problem": {"kernel": {"name": "rbf", "gamma": 10**400}}}, {"problem": {"kernel": {"name": "rbf", "gamma": True}}},
    {"problem": {"kernel": {"name": "rbf", "gamma": -1.0}}}, {"problem": {"kernel": {"name": ["rbf"]}}},
    {"problem": {"kernel": {"name": "poly", "degree": 2.5}}}, {"problem": {"kernel": {"name": "poly", "degree": 65}}},
    {"problem": {"kernel": {"name": "rbf"}, "multi_class": "all"}},
    {"problem": {"kernel": {"name": "rbf"}, "multi_class": ["ovr"]}},
    {"problem": {"kernel": {"name": "rbf"}, "multi_class": "ovo"}, "classes": list(range(10**5))},
    {"kind": "linear"}, {"format_version": 4},
]  # fmt: skip


@pytest.mark.parametrize("change", BAD_DOCUMENTS, ids=lambda change: str(change)[:60])
def test_foreign_documents_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    make("dense").save(tmp_path / "m")
    rewrite(tmp_path / "m", **change)
    with pytest.raises(DataError):
        load_model(tmp_path / "m")


def test_a_precomputed_model_with_support_vectors_ignores_them_and_one_without_is_refused(tmp_path: Path) -> None:
    make("precomputed").save(tmp_path / "m")
    problem = read(tmp_path / "m")["problem"]
    rewrite(tmp_path / "m", problem={**problem, "kernel": {"name": "rbf", "gamma": 1.0}})
    with pytest.raises(DataError, match=r"support_data\.npy"):
        load_model(tmp_path / "m")


def test_every_error_is_ours(tmp_path: Path) -> None:
    """Flipped bytes with renewed digests give a model of finite numbers or a BigSVMError, never anything else."""
    make("csr").save(tmp_path / "m")
    rng = np.random.default_rng(0)
    for _ in range(60):
        shutil.rmtree(tmp_path / "c", ignore_errors=True)
        shutil.copytree(tmp_path / "m", tmp_path / "c")
        name = files_of("csr")[rng.integers(6)]
        content = bytearray((tmp_path / "c" / name).read_bytes())
        for at in rng.integers(0, len(content), 2):
            content[at] = rng.integers(256)
        (tmp_path / "c" / name).write_bytes(content)
        renew(tmp_path / "c", name)
        try:
            back = load_model(tmp_path / "c")
        except BigSVMError:
            continue
        assert back.scores(rows(3)).shape == (3, 1)


def test_a_fall_between_two_pieces_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "_PIECE", 4)
    for n in (0, 1, 4, 5, 9):
        assert model_files.is_ascending(np.arange(n))
        assert model_files.is_finite(np.arange(n) / 1.0)
    for at in range(1, 9):
        rows_of = np.arange(9)
        rows_of[at] = rows_of[at - 1]
        assert not model_files.is_ascending(rows_of)
        assert not model_files.is_finite(np.where(np.arange(9) == at, np.nan, 0.0))
