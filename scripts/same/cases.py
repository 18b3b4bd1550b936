"""The cases of `same_bytes.py`, and the data that they are fitted on.  Nothing of bigsvm.

Data come from a seed and are written by NumPy, zarr and pyarrow, so that both trees read the same files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr

# ---- the cases


@dataclasses.dataclass(frozen=True)
class Case:
    """One fit, and what is done with its model: `certify`, `evaluate` and `predict`.

    name : unique; also the name of the case's folder
    data : a key of DATA
    flags : of `bigsvm fit`, as they are typed
    options : arguments of the Python call, where `door` is not the command line
    door : 'command' for `bigsvm fit`; 'fit' and 'fit_path' for the functions of that name, on arrays; 'seal' for
        `bigsvm seal`, without a fit
    code : the exit code that the fit is meant to have; another one means that the case does not test what it should
    streamed : the memory is the least that `bigsvm plan` names, and the data do not fit in it
    resumed : the fit is stopped by `--max-passes` after so many passes, then goes on by `--resume`
    """

    name: str
    data: str
    flags: str = ""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    door: str = "command"
    code: int = 0
    streamed: bool = False
    resumed: int = 0


def _linear() -> list[Case]:
    """Every linear solver with the losses and biases that it takes, on rows in memory."""
    return [
        Case("dcd-hinge", "dense32", "-s dcd --loss hinge"),
        Case("dcd-squared", "dense32", "-s dcd --loss squared_hinge --bias none"),
        Case("dcd-random", "dense32", "-s dcd --loss hinge --set order=random"),
        Case("dcd-paper", "dense32", "-s dcd --loss hinge --stop paper --set eps=1e-2 --c 0.01"),
        Case("dcd-crammer-singer", "classes", "--loss crammer_singer"),
        Case("newton-augmented", "dense32", "-s newton"),
        Case("newton-none", "csr", "-s newton --bias none --c 0.1"),
        Case("newton-free", "dense64", "-s newton --bias free"),
        Case("newton-cg-free", "csr", "-s newton-cg --bias free --c 10"),
        Case("newton-cg-regression", "target", "-s newton-cg --loss squared_epsilon_insensitive"),
        Case("newton-ws-hinge", "dense32", "-s newton-ws --loss hinge --bias free"),
        Case("newton-ws-squared", "dense32", "-s newton-ws --loss squared_hinge --c 10"),
        Case("interior-point", "target", "-s interior-point --loss epsilon_insensitive --bias free"),
        Case("ssvm", "dense32", "-s ssvm --set smoothing=50 --bias none"),
        Case("pcd-augmented", "csr", "-s pcd"),
        Case("pcd-free", "dense32", "-s pcd --bias free --tol 1e-2"),
        Case("cd", "dense32", "-s cd --tol 1e-2 --c 0.01"),
        Case("rosenbrock-scratch", "dense32", "-s rosenbrock --tol 0.2 --c 0.01 --set plan=scratch"),
        Case("rosenbrock-model", "dense32", "-s rosenbrock --tol 0.2 --c 0.01 --set plan=model --bias free"),
        Case("hyperpass", "dense32", "-s hyperpass --loss hinge --tol 1e-2"),
        Case("hyperpass-cg", "dense32", "-s hyperpass --loss hinge --tol 1e-2 --set direction=cg --bias none"),
        Case("hyperpass-free", "dense32", "-s hyperpass --loss hinge --tol 1e-2 --bias free"),
        Case("hyperpass-shrink", "dense32", "-s hyperpass-shrink --loss hinge --tol 1e-2 --c 0.01"),
        Case("pegasos", "dense32", "-s pegasos --loss hinge --tol 3e-2 --c 0.01"),
        Case("auto", "csr", ""),
        Case("dcd-regression", "target", "-s dcd --loss epsilon_insensitive --epsilon 0.2"),
        Case("dcd-squared-regression", "target", "-s dcd --loss squared_epsilon_insensitive --bias none"),
        Case("pcd-regression", "target", "-s pcd --loss squared_epsilon_insensitive"),
        Case("newton-regression", "target", "-s newton --loss squared_epsilon_insensitive --bias free"),
        Case("auto-hinge-free", "dense64", "--loss hinge --bias free"),
    ]


def _kernels() -> list[Case]:
    """Each Mercer kernel, each solver of the dual, each rule of choosing rows."""
    rbf = "--kernel rbf --gamma 0.1"
    return [
        Case("smo-linear", "small", "-s smo --kernel linear"),
        Case("smo-rbf", "dense32", f"-s smo {rbf}"),
        Case("smo-rbf-csr", "csr", "-s smo --kernel rbf --c 10"),
        Case("smo-rbf-scans", "dense-kernel", "-s smo --kernel rbf --gamma 0.1 --c 10"),
        Case("smo-rbf-float64", "dense64", f"-s smo {rbf}"),
        Case("smo-poly", "small", "-s smo --kernel poly --degree 2 --coef0 1 --gamma 0.1"),
        Case("smo-sigmoid", "small", "-s smo --kernel sigmoid --gamma 0.01 --c 0.1"),
        Case("smo-precomputed", "gram", "-s smo --kernel precomputed"),
        *(Case(f"smo-wss-{rule}", "small", f"-s smo {rbf} --wss {rule}") for rule in ("1", "3", "keerthi2", "wr+3")),
        Case("smo-wss-wr", "small", f"-s smo {rbf} --wss wr --allow-unconverged"),
        Case("smo-textbook", "small", f"-s smo {rbf} --working-set 2"),
        Case("smo-no-shrinking", "small", f"-s smo {rbf} --no-shrinking --working-set 64"),
        Case("smo-paper", "small", f"-s smo {rbf} --stop paper"),
        Case("smo-regression", "target", f"-s smo {rbf} --loss epsilon_insensitive --epsilon 0.2"),
        Case("smo-nu-svc", "small", f"{rbf} --loss nu_svc --nu 0.4"),
        Case("smo-nu-svr", "target", f"{rbf} --loss nu_svr --nu 0.4"),
        Case("smo-one-class", "small", f"{rbf} --loss one_class --nu 0.2"),
        Case("rosen", "small", f"-s rosen {rbf}"),
        Case("rosen-block", "small", f"-s rosen-block {rbf}"),
        Case("rosen-poly", "small", "-s rosen --kernel poly --degree 2 --coef0 1 --gamma 0.1 --c 0.1"),
        Case("rosen-block-csr", "csr", "-s rosen-block --kernel rbf"),
        Case("simplified-smo-sigmoid", "small", "-s simplified-smo --kernel sigmoid --gamma 0.01 --stop paper --c 0.1"),
        Case("platt-smo-linear", "small", "-s platt-smo --kernel linear --stop paper --c 0.1"),
        Case("rosen-linear", "small", "-s rosen --kernel linear --c 0.1"),
        Case("rosen-block-precomputed", "gram", "-s rosen-block --kernel precomputed"),
        Case("rosen-block-regression", "target", f"-s rosen-block {rbf} --loss epsilon_insensitive"),
        Case("simplified-smo", "small", f"-s simplified-smo {rbf} --stop paper"),
        Case("simplified-smo-km", "small", f"-s simplified-smo-km {rbf} --stop paper"),
        Case("platt-smo", "small", f"-s platt-smo {rbf} --stop paper"),
    ]


def _problems() -> list[Case]:
    """Weights, classes, paths, stop rules, formats, doors, a stopped fit, threads."""
    return [
        Case("sample-weight", "dense32", "-s dcd --loss hinge --weight obs/weight"),
        Case("sample-weight-rbf", "small", "-s smo --kernel rbf --weight obs/weight"),
        Case("class-weight", "dense32", "-s newton --class-weight balanced"),
        Case("classes-ovr", "classes", "-s dcd --loss hinge"),
        Case("classes-newton-ws", "classes", "--loss hinge --bias free"),
        Case("classes-ovo-rbf", "classes", "--kernel rbf"),
        Case("classes-ovr-rbf", "classes", "--kernel rbf --multi-class ovr"),
        Case("lambda", "dense32", "-s dcd --lambda 0.001 --seed 7 --bias-scale 2"),
        Case("paper-hyperpass", "dense32", "-s hyperpass --loss hinge --stop paper --c 0.01"),
        Case("paper-newton", "dense32", "-s newton --stop paper"),
        Case(
            "two-shards",
            "stream",
            "-s dcd --loss hinge --c 0.01 --shards 2 --rounds-per-pass 4 --threads 2",
            streamed=True,
        ),
        Case("two-shards-newton-ws", "stream", "-s newton-ws --loss hinge --shards 2 --tol 1e-2", streamed=True),
        Case("unsealed", "unsealed", "-s dcd --loss hinge"),
        Case("no-dual", "dense32", "-s dcd --no-dual"),
        Case("parquet", "parquet", "-s dcd"),
        Case("parquet-rows", "parquet", "-s dcd --rows f0>0"),
        Case("labels-dcd", "labels", "-s dcd --loss hinge --rows f3>0"),
        Case("labels-newton", "labels", "-s newton --bias free"),
        Case("text", "text", "-s dcd --loss hinge"),
        Case("arrays", "dense32", options={"solver": "dcd", "loss": "hinge"}, door="fit"),
        Case("arrays-csr", "csr", options={"solver": "newton", "C": 0.1}, door="fit"),
        Case("arrays-rbf", "small", options={"kernel": "rbf", "gamma": 0.1}, door="fit"),
        Case("path", "dense32", options={"Cs": [0.01, 0.1, 1.0], "loss": "hinge"}, door="fit_path"),
        Case("path-newton", "dense32", options={"Cs": [1.0, 0.1], "solver": "newton"}, door="fit_path"),
    ]


def _streams() -> list[Case]:
    """Rows that do not fit the memory, from a working copy and from the store itself; and fits that were stopped."""
    easy = "--c 0.001 --tol 1e-2"
    return [
        Case("stream-dcd", "stream", f"-s dcd --loss hinge {easy}", streamed=True),
        Case("stream-dcd-paper", "stream", "-s dcd --stop paper --set eps=0.1 --c 0.001", streamed=True),
        Case("stream-crammer-singer", "stream-classes", f"--multi-class crammer-singer {easy}", streamed=True),
        Case("stream-dcd-threads", "stream", f"-s dcd {easy} --threads 2", streamed=True),
        Case("stream-unstaged", "stream", f"-s dcd --loss hinge {easy} --stage none", streamed=True),
        Case("stream-csr", "stream-csr", f"-s dcd --loss hinge {easy}", streamed=True),
        Case("stream-newton", "stream", f"-s newton {easy}", streamed=True),
        Case("stream-newton-ws", "stream", f"-s newton-ws --loss hinge {easy}", streamed=True),
        Case("stream-pcd", "stream", f"-s pcd {easy}", streamed=True),
        Case("stream-hyperpass", "stream", f"-s hyperpass --loss hinge {easy}", streamed=True),
        Case("stream-hyperpass-shrink", "stream", f"-s hyperpass-shrink --loss hinge {easy}", streamed=True),
        Case("stream-pegasos", "stream", f"-s pegasos --loss hinge {easy} --tol 0.1", streamed=True),
        Case("stream-ssvm", "stream", f"-s ssvm {easy} --set smoothing=50", streamed=True),
        Case("stream-cd", "stream", f"-s cd {easy}", streamed=True),
        Case("stream-classes", "stream-classes", f"-s dcd --loss hinge {easy}", streamed=True),
        Case("stream-weights", "stream", f"-s newton {easy} --bias free --weight obs/weight", streamed=True),
        Case("stream-smo", "stream", "-s smo --kernel rbf --c 0.01 --tol 0.1", streamed=True),
        Case("resumed-dcd", "stream", "-s dcd --loss hinge --c 0.01", streamed=True, resumed=2),
        Case(
            "resumed-crammer-singer",
            "stream-classes",
            "--multi-class crammer-singer --c 0.01",
            streamed=True,
            resumed=2,
        ),
        Case("resumed-newton", "stream", "-s newton --tol 1e-6", streamed=True, resumed=2),
        Case("resumed-smo", "dense32", "-s smo --kernel rbf --tol 1e-6", resumed=1),
    ]


def _refusals() -> list[Case]:
    """What is refused, and in what words."""
    return [
        Case("refused-solver", "dense32", "-s newton --loss hinge", code=2),
        Case("refused-option", "dense32", "-s dcd --set nonsense=1", code=2),
        Case("refused-memory", "stream", "-s dcd --memory 64KiB", code=78),
        Case("refused-label", "dense32", "--label obs/nothing", code=65),
        Case("refused-nan", "nan", "-s dcd", code=65),
        Case("refused-store", "nowhere", "-s dcd", code=66),
        Case("refused-kernel", "dense32", "-s smo --kernel precomputed", code=65),
    ]


def seals(cases: list[Case]) -> list[Case]:
    """Cases that seal the stores of others, to be run before those.

    A store that is not sealed gives a warning to whichever fit reads it first.
    """
    names = dict.fromkeys(case.data for case in cases)
    return [Case(f"seal-{name}", name, door="seal") for name in names if DATA[name].sealed]


CASES: list[Case] = [*_linear(), *_kernels(), *_problems(), *_streams(), *_refusals()]
SMOKE = ("dcd-hinge", "smo-rbf", "arrays", "refused-nan")

# ---- the data

N_FEATURES = 12


@dataclasses.dataclass(frozen=True)
class Data:
    """Rows of the cases.

    store : where they lie, relative to the data folder; `write` makes them there
    columns : the flags that name their labels
    sealed : whether they are sealed before they are read
    """

    store: str
    write: Callable[[Path], None]
    columns: tuple[str, ...] = ("--label", "obs/label")
    sealed: bool = True


def _rows(n_samples: int, n_features: int, seed: int, dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """Dense rows and the noisy values of a planted direction."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features)) / 2
    return X.astype(dtype), X @ rng.standard_normal(n_features) + 0.3 * rng.standard_normal(n_samples)


def _dense(n_samples: int, n_features: int = N_FEATURES, dtype: Any = np.float32, classes: int = 2) -> Any:
    """A writer of dense rows of so many classes; classes = 0: of numbers."""

    def write(path: Path) -> None:
        X, values = _rows(n_samples, n_features, n_samples + n_features, dtype)
        y = values if classes == 0 else np.digitize(values, np.quantile(values, np.arange(1, classes) / classes))
        _write_zarr(path, X, y.astype(np.float64 if classes == 0 else np.int64))

    return write


def _sparse(n_samples: int, n_features: int, per_row: int) -> Any:
    """A writer of CSR rows with so many entries each."""

    def write(path: Path) -> None:
        rng = np.random.default_rng(n_samples)
        indices = np.sort(rng.permuted(np.tile(np.arange(n_features), (n_samples, 1)), axis=1)[:, :per_row], axis=1)
        data = rng.standard_normal(indices.shape).astype(np.float32)
        y = ((data * rng.standard_normal(n_features)[indices]).sum(axis=1) > 0).astype(np.int64)
        indptr = np.arange(n_samples + 1, dtype=np.int64) * per_row
        _write_zarr(path, (data.ravel(), indices.ravel().astype(np.int32), indptr, n_features), y)

    return write


def _gram(path: Path) -> None:
    X, values = _rows(250, N_FEATURES, 250, np.float64)
    squares = (X**2).sum(axis=1)
    K = np.exp(-0.1 * np.maximum(squares[:, None] + squares - 2 * X @ X.T, 0))
    np.fill_diagonal(K, 1.0)
    _write_zarr(path, (K + K.T) / 2, (values > 0).astype(np.int64))


def _nan(path: Path) -> None:
    X, values = _rows(300, N_FEATURES, 300)
    X[123, 4] = np.nan
    _write_zarr(path, X, (values > 0).astype(np.int64))


def _parquet(path: Path) -> None:
    X, values = _rows(900, N_FEATURES, 900)
    columns = {f"f{j}": pa.array(np.ascontiguousarray(X[:, j])) for j in range(N_FEATURES)}
    table = pa.table({**columns, "label": pa.array((values > 0).astype(np.int64))})
    pq.write_table(table, path, row_group_size=400, write_page_checksum=True)


def _several(path: Path) -> None:
    X, values = _rows(700, N_FEATURES, 700)
    columns = {f"f{j}": pa.array(np.ascontiguousarray(X[:, j])) for j in range(N_FEATURES)}
    labels = {"low": values < 0.5, "high": values > 0, "first": X[:, 0] > 0.2}
    pq.write_table(pa.table({**columns, **labels}), path, row_group_size=300, write_page_checksum=True)


def _text(path: Path) -> None:
    X, values = _rows(500, N_FEATURES, 500)
    with open(path, "w") as file:
        for row, value in zip(X.tolist(), values, strict=True):
            file.write(f"{'+1' if value > 0 else '-1'} {' '.join(f'{j + 1}:{x:.6g}' for j, x in enumerate(row))}\n")


def _write_zarr(path: Path, X: Any, y: np.ndarray) -> None:
    """An AnnData-shaped store with obs/label and obs/weight; float64 rows in format 2.

    X : rows; or the data, indices, indptr of a CSR array and its number of columns
    """
    sparse = isinstance(X, tuple)
    version = 2 if not sparse and X.dtype == np.float64 else 3
    group = zarr.create_group(path, zarr_format=version, attributes={"encoding-type": "anndata"})
    whole: dict[str, Any] = {"config": {"write_empty_chunks": True}}
    if sparse:
        data, indices, indptr, n_features = X
        inner = group.create_group("X", attributes={"encoding-type": "csr_matrix", "shape": [len(y), n_features]})
        for name, values in (("data", data), ("indices", indices), ("indptr", indptr)):
            inner.create_array(name, data=values, chunks=(min(20_000, len(values)),), **whole)
    else:
        group.create_array("X", data=X, chunks=(min(max(len(X) // 4, 100), 5000), X.shape[1]), **whole)
    frame = group.create_group("obs", attributes={"encoding-type": "dataframe", "column-order": ["label", "weight"]})
    weight = np.random.default_rng(len(y)).integers(0, 4, len(y)) / 2
    for name, values in (("label", y), ("weight", weight)):
        frame.create_array(name, data=values, chunks=(len(values),), **whole)


DATA: dict[str, Data] = {
    "small": Data("small.zarr", _dense(300)),
    "dense32": Data("dense32.zarr", _dense(1000)),
    "dense64": Data("dense64.zarr", _dense(800, dtype=np.float64)),
    "dense-kernel": Data("dense-kernel.zarr", _dense(6000, 40)),
    "csr": Data("csr.zarr", _sparse(700, 200, 15)),
    "classes": Data("classes.zarr", _dense(600, classes=4)),
    "target": Data("target.zarr", _dense(250, classes=0)),
    "gram": Data("gram.zarr", _gram),
    "parquet": Data("rows.parquet", _parquet, ("--label", "label"), sealed=False),
    "labels": Data("labels.parquet", _several, ("--labels", "low,high,first"), sealed=False),
    "text": Data("rows.svm", _text, (), sealed=False),
    "stream": Data("stream.zarr", _dense(60_000, 40)),
    "stream-classes": Data("stream-classes.zarr", _dense(50_000, 40, classes=3)),
    "stream-csr": Data("stream-csr.zarr", _sparse(40_000, 300, 30)),
    "unsealed": Data("unsealed.zarr", _dense(310), sealed=False),
    "nan": Data("nan.zarr", _nan),
    "nowhere": Data("nowhere.zarr", lambda _: None, sealed=False),
}
