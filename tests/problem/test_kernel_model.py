"""Kernel models: scores are scikit-learn's, the round trip is exact, damage is refused, memory is bounded."""

from __future__ import annotations

import dataclasses
import json
import pickle
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from bigsvm.errors import BigSVMError, DataError, OutputError
from bigsvm.kernels.rows import CSR, take_rows
from bigsvm.problem import kernel_scores as scoring
from bigsvm.problem import support as supporting
from bigsvm.problem.kernel import Kernel
from bigsvm.problem.kernel_model import KernelModel, _from_home
from bigsvm.problem.model import load_alpha, load_model
from bigsvm.problem.support import SupportPieces, support_blocks
from bigsvm.store.files import file_digest
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


# What is computed


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize("name", list(KERNELS))
def test_classes_are_scikit_learns(name: str, n_classes: int, layout: str) -> None:
    X, new = rows(), rows(40, seed=5)
    oracle, model = svc(X, labels(X, n_classes), KERNELS[name], D, layout)
    expected = oracle.decision_function(new)
    for given in (new, to_csr(new), sparse.csr_array(new)):
        np.testing.assert_allclose(model.decision_function(given), expected, rtol=1e-10, atol=1e-10)
    assert model.decision_function(new).shape == ((40,) if n_classes == 2 else (40, n_classes * (n_classes - 1) // 2))
    np.testing.assert_array_equal(model.predict(new), oracle.predict(new))
    assert len(set(model.predict(new).tolist())) == n_classes or name == "sigmoid"


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("name", list(KERNELS))
def test_values_are_scikit_learns(name: str, layout: str) -> None:
    X, new = rows(), rows(40, seed=5)
    oracle, model = svr(X, np.sin(X[:, 0]) + X[:, 1], KERNELS[name], D, layout)
    assert model.regression
    np.testing.assert_allclose(model.predict(new), oracle.predict(new), rtol=1e-10, atol=1e-10)


def test_precomputed_values_are_scikit_learns() -> None:
    X, new = rows(), rows(40, seed=5)
    K, given = KERNELS["rbf"].matrix(X, X), KERNELS["rbf"].matrix(new, X)
    oracle, model = svc(K, labels(X, 3), Kernel("precomputed"), len(X))
    np.testing.assert_allclose(model.decision_function(given), oracle.decision_function(given), rtol=1e-10)
    np.testing.assert_array_equal(model.decision_function(to_csr(given)), model.decision_function(given))
    with pytest.raises(DataError, match="39 kernel values a row"):
        model.decision_function(given[:, :39])


@pytest.mark.parametrize("support", ["dense", "csr"])
def test_the_same_bits_whatever_is_worked_on_at_one_time(support: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows alone or in tiles; with a column entry for every feature or for those that occur."""
    _, model = svc(rows(), labels(rows(), 3), KERNELS["rbf"], D, support)
    new = rows(40, seed=5)
    new[:, 3] = 0.0
    expected, of_sparse = model.scores(new), model.scores(to_csr(new))
    np.testing.assert_allclose(of_sparse, expected, rtol=1e-12, atol=1e-13)  # norms are summed in other lanes
    np.testing.assert_array_equal(np.concatenate([model.scores(new[i : i + 1]) for i in range(40)]), expected)
    monkeypatch.setattr("bigsvm.problem.kernel_model._ROWS_BYTES", 300)
    np.testing.assert_array_equal(model.scores(new), expected)
    monkeypatch.setattr(scoring, "LARGEST_COLUMNS", 0)
    np.testing.assert_array_equal(model.scores(new), expected)
    np.testing.assert_array_equal(model.scores(to_csr(new)), of_sparse)
    monkeypatch.setattr(scoring, "_TABLE", 0)
    np.testing.assert_array_equal(model.scores(to_csr(new)), of_sparse)


@pytest.mark.parametrize("columns", [0, 1 << 20])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
@pytest.mark.parametrize("support", ["dense", "csr"])
def test_narrow_rows_are_padded_and_wide_ones_refused(
    support: str, dtype: Any, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "LARGEST_COLUMNS", columns)
    rng = np.random.default_rng(1)
    dense = rng.integers(0, 4, (20, D)).astype(dtype)
    made = KernelModel(
        kernel=KERNELS["poly"], support=to_csr(dense) if support == "csr" else dense,
        support_rows=np.arange(20), dual_coef=rng.standard_normal((1, 20)), intercept=np.zeros(1),
        classes=np.array(["no", "yes"]), n_features=D,
    )  # fmt: skip
    new = rng.integers(0, 4, (9, 3)).astype(dtype)
    padded = np.hstack([new, np.zeros((9, 3), dtype)]).astype(np.float64)
    expected = KERNELS["poly"].matrix(padded, dense.astype(np.float64)) @ made.dual_coef[0]
    for given in (new, to_csr(new)):
        np.testing.assert_allclose(made.scores(given)[:, 0], expected, rtol=1e-12)
    with pytest.raises(DataError, match="7 features and the model 6"):
        made.scores(np.zeros((1, 7)))
    with pytest.raises(DataError, match=r"row 1.*feature 6"):
        made.decision_function(sparse.csr_array(([1.0, 1.0], ([0, 1], [2, 6])), shape=(2, 7)))


def test_no_support_vectors_give_the_intercept(tmp_path: Path) -> None:
    for support in (np.empty((0, D)), CSR(np.empty(0), np.empty(0, np.int32), np.zeros(1, np.int64)), None):
        made = KernelModel(
            kernel=Kernel("precomputed" if support is None else "rbf"), support=support,
            support_rows=np.empty(0, np.int64), dual_coef=np.empty((1, 0)), intercept=np.array([2.5]),
            classes=np.empty(0), n_features=D,
        )  # fmt: skip
        shutil.rmtree(tmp_path / "m", ignore_errors=True)
        made.save(tmp_path / "m")
        back = load_model(tmp_path / "m")
        assert back.predict(np.ones((2, D))).tolist() == [2.5, 2.5]


def test_a_row_without_entries_among_sparse_ones() -> None:
    X = rows()
    X[7] = 0.0
    oracle, model = svc(X, labels(X, 2), KERNELS["rbf"], D, "csr")
    new = np.zeros((3, D))
    np.testing.assert_allclose(model.decision_function(to_csr(new)), oracle.decision_function(new), rtol=1e-10)


# On disk


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


def test_arrays_are_maps_and_pickle_as_their_folder(tmp_path: Path) -> None:
    make("csr").save(tmp_path / "m")
    back = load_model(tmp_path / "m")
    for array in (*back.support, back.dual_coef, back.support_rows):
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable
    text = pickle.dumps(back)
    assert len(text) < 1000
    there = pickle.loads(text)
    assert_same(back, there)
    assert pickle.loads(text) is there  # mapped once in a process
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
    document = json.loads((folder / "model.json").read_text())
    document["digests"][name] = file_digest(folder / name)
    (folder / "model.json").write_text(json.dumps(document))


Bad = Callable[[np.ndarray], np.ndarray]
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
    ("csr", "support_indptr.npy", lambda a: a.astype(np.int32)),
    ("csr", "support_indices.npy", lambda a: a + D),
    ("csr", "support_indices.npy", lambda a: a - D),
    ("csr", "support_indices.npy", lambda a: np.zeros_like(a)),
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
    {"kind": "linear"}, {"format_version": 3},
]  # fmt: skip


@pytest.mark.parametrize("change", BAD_DOCUMENTS, ids=lambda change: str(change)[:60])
def test_foreign_documents_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    make("dense").save(tmp_path / "m")
    path = tmp_path / "m" / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DataError):
        load_model(tmp_path / "m")


def test_a_precomputed_model_with_support_vectors_ignores_them_and_one_without_is_refused(tmp_path: Path) -> None:
    make("precomputed").save(tmp_path / "m")
    path = tmp_path / "m" / "model.json"
    document = json.loads(path.read_text())
    document["problem"]["kernel"] = {"name": "rbf", "gamma": 1.0}
    path.write_text(json.dumps(document))
    with pytest.raises(DataError, match=r"support_data\.npy"):
        load_model(tmp_path / "m")


# Memory


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_memory_is_bounded_however_many_support_vectors(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """24 MB of support vectors are written, checked and summed over in a few MB, and those are what it says."""
    n, d, step = 60_000, 100, 2_000

    def pieces() -> Iterator[Any]:
        for start in range(0, n, step):
            dense = np.random.default_rng([1, start]).standard_normal((step, d)).astype(np.float32)
            yield dense if layout == "dense" else to_csr(dense)

    made = KernelModel(
        Kernel("rbf", 0.01), SupportPieces(layout, np.dtype(np.float32), pieces), np.arange(n),
        np.random.default_rng(2).standard_normal((1, n)), np.zeros(1), np.array([0, 1]), d,
    )  # fmt: skip
    X = np.random.default_rng(3).standard_normal((20, d))
    make("dense").scores(rows(2))  # compiled before anything is counted

    def peak(call: Callable[[], Any]) -> tuple[Any, int]:
        tracemalloc.start()
        try:
            found = call()
            return found, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    _, writing = peak(lambda: made.save(tmp_path / "m"))
    back, reading = peak(lambda: load_model(tmp_path / "m"))
    back.scores(X[:1])
    scores, summing = peak(lambda: back.scores(X))
    assert writing < 8 << 20
    assert reading < 8 << 20
    assert summing < back.scoring_bytes < 12 << 20
    some = take_rows(back.support, 0, 500)
    few = dataclasses.replace(back, support=some, support_rows=np.arange(500), dual_coef=back.dual_coef[:, :500].copy())
    first = np.asarray(some) if layout == "dense" else sparse.csr_array(tuple(map(np.array, some)), (500, d)).toarray()
    K = Kernel("rbf", 0.01).matrix(X, first.astype(np.float64))
    np.testing.assert_allclose(few.scores(X)[:, 0], K @ back.dual_coef[0, :500], rtol=1e-9, atol=1e-12)
    assert np.all(np.isfinite(scores))


def test_blocks_cover_every_support_vector_once_and_keep_to_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supporting, "LARGEST_COLUMNS", 2000)
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((300, 40)) < rng.random((300, 1)), 1.0, 0.0)
    for support in (dense, to_csr(dense)):
        seen, at = [], 0
        for first, last, block in support_blocks(support):
            assert first == at
            at = last
            rows_there = (
                block if isinstance(block, np.ndarray) else sparse.csr_array(block, (last - first, 40)).toarray()
            )
            seen.append(rows_there)
            width = 40 if isinstance(block, np.ndarray) else len(block.data)
            assert 8 * width * (last - first) <= 2000 or last - first == 1
        assert at == 300
        np.testing.assert_array_equal(np.concatenate(seen), dense)


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
        document = json.loads((tmp_path / "c" / "model.json").read_text())
        document["digests"][name] = file_digest(tmp_path / "c" / name)
        (tmp_path / "c" / "model.json").write_text(json.dumps(document))
        try:
            back = load_model(tmp_path / "c")
        except BigSVMError:
            continue
        assert back.scores(rows(3)).shape == (3, 1)
