"""--split: rows kept back by a hash of their numbers, and how well the model does on them."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr

import bigsvm
from bigsvm.cli.main import run
from bigsvm.errors import DataError, UsageError
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.store.formats.chosen.split_rows import SplitRows, hashed, others_of
from bigsvm.store.formats.opener import open_store
from bigsvm.store.transforms.scaling import Scaling
from bigsvm.testing.contracts import RowBlocksContract, dense
from bigsvm.testing.problems import random_problem
from tests.products import pairs_of
from tests.store import formats

N = 203
X, LABELS = random_problem(N, 6, 0.6, seed=71, noise=0.2)
SVM = [
    f"{label} " + " ".join(f"{j + 1}:{value!r}" for j, value in enumerate(row.tolist()) if value) + "\n"
    for row, label in zip(X, LABELS, strict=True)
]
TRAIN = hashed(np.arange(N)) < 0.7
OPTIONS: dict[str, Any] = {"tol": 1e-6, "memory": "64MiB", "threads": 1}


def rows(store: Any, block_rows: int = 7) -> np.ndarray:
    return np.concatenate([dense(store.read(ref).X, store.n_features) for ref in store.refs(block_rows)])


def test_the_hash_is_splitmix64_and_even() -> None:
    # The first outputs of the generator from seed 0, as its author publishes them.
    first = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert [int(value * 2.0**53) for value in hashed(np.arange(4))] == [value >> 11 for value in first]
    many = hashed(np.arange(100_000))
    for share in (0.1, 0.5, 0.9):
        assert abs((many < share).mean() - share) < 0.005


@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_the_sides_are_all_rows_once(layout: str, tmp_path: Path) -> None:
    path = formats.written(tmp_path / "s.zarr", X, LABELS, layout=layout)
    train, test = (open_store(path, split=0.7, part=part) for part in ("train", "test"))
    np.testing.assert_array_equal(rows(train), X[TRAIN])
    np.testing.assert_array_equal(rows(test), X[~TRAIN])
    for store, mine in ((train, TRAIN), (test, ~TRAIN)):
        y = np.concatenate([store.classes[store.read(ref).y] for ref in store.refs(11)])
        np.testing.assert_array_equal(y, LABELS[mine])
        wanted = X[mine].size if layout == "dense" else np.count_nonzero(X[mine])
        for given in (store, open_store(path, split=0.7, part=store.part)):  # counted, and then remembered
            assert given.nnz == wanted
    assert len({train.identity.digest, test.identity.digest, open_store(path).identity.digest}) == 3
    again = pickle.loads(pickle.dumps(train))
    assert again.identity == train.identity
    np.testing.assert_array_equal(rows(again), X[TRAIN])
    in_memory = open_store((sp.csr_array(X) if layout == "csr" else X, LABELS), split=0.7)
    assert in_memory.nnz == train.nnz
    np.testing.assert_array_equal(rows(in_memory), X[TRAIN])


def test_a_store_that_grows_keeps_the_sides_of_its_rows() -> None:
    few, many = (SplitRows(open_store((X[:n], LABELS[:n])), 0.7, "train") for n in (150, N))
    np.testing.assert_array_equal(rows(many)[: few.n_samples], rows(few))


@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_a_fit_learns_from_its_rows_alone_and_tells_of_the_others(layout: str, tmp_path: Path) -> None:
    path = formats.written(tmp_path / "s.zarr", np.abs(X), LABELS, layout=layout)
    asked: dict[str, Any] = {"normalize": "log1p", "scale": "standard", "solver": "newton"}
    result = bigsvm.fit(path, split=0.7, **asked, **OPTIONS)
    form = sp.csr_array if layout == "csr" else np.asarray
    plain = bigsvm.fit(form(np.abs(X[TRAIN])), LABELS[TRAIN], **asked, **OPTIONS)
    np.testing.assert_array_equal(result.model.coef, plain.model.coef)
    assert result.figures["n_samples"] == TRAIN.sum()
    right = plain.model.predict(form(np.abs(X[~TRAIN]))) == LABELS[~TRAIN]
    held_out = result.figures["held_out"]
    assert held_out["n_rows"] == (~TRAIN).sum()
    assert held_out["accuracy"] == pytest.approx(right.mean(), abs=1e-12)
    # The moments, too, are those of the rows that were trained on.
    kept = [Scaling.of(found.model.about["rows"]) for found in (result, plain)]
    assert kept[0].document() == kept[1].document()
    result.save_model(tmp_path / "m")
    assert bigsvm.certify(tmp_path / "m", path)["n_samples"] == TRAIN.sum()
    like = result.model.about["rows"]
    config = bigsvm.config.FitConfig.of(threads=1, memory="64MiB")
    assert evaluate(result.model, open_store(path, like=like, part="test"), config)["accuracy"] == held_out["accuracy"]
    assert evaluate(result.model, open_store(path, like=like), config)["n_rows"] == N


def test_commands_tell_of_rows_that_were_kept_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    formats.written(tmp_path / "s.zarr", X, LABELS)
    (tmp_path / "t.svm").write_text("1 1:1\n-1 1:-1\n")

    def said(*command: str) -> dict[str, Any]:
        capsys.readouterr()
        assert run([*command, "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)["result"]

    def refused(code: int, *command: str) -> str:
        capsys.readouterr()
        assert run([*command]) == code
        return capsys.readouterr().err

    fit = ("fit", "s.zarr", "--split", "0.7", "--scale", "maxabs", "-o", "m")
    made = said(*fit)
    kept_back = said("evaluate", "m", "s.zarr", "--split")
    assert {name: kept_back[name] for name in made["held_out"]} == made["held_out"]
    assert kept_back["n_rows"] == (~TRAIN).sum()
    assert said("evaluate", "m", "s.zarr")["n_rows"] == N
    assert said("predict", "m", "s.zarr", "-o", "p.csv")["n_samples"] == N
    assert said("certify", "m", "s.zarr")["n_samples"] == TRAIN.sum()
    assert said(*fit, "--resume")["held_out"] == made["held_out"]  # over: told again
    capsys.readouterr()
    assert run([*fit, "--overwrite"]) == 0
    assert "other rows" in capsys.readouterr().out
    said("fit", "s.zarr", "-o", "plain")
    assert (said("inspect", "m")["split"], said("inspect", "plain").get("split")) == (0.7, None)
    assert run(["inspect", "m"]) == 0
    assert f"trained on    {TRAIN.sum()} rows (a split of 0.7), content" in capsys.readouterr().out
    assert "trained on all rows" in refused(2, "evaluate", "plain", "s.zarr", "--split")
    assert "--split does not apply to svmlight text" in refused(2, "evaluate", "m", "t.svm", "--split")
    for share in ("0", "1.5", "nan", "-1"):
        assert "a split of" in refused(2, "fit", "s.zarr", "--split", share, "-o", "m3")
    assert said("plan", "s.zarr", "--split", "0.7")["n_samples"] == TRAIN.sum()


def test_a_share_that_a_store_records_is_the_default_of_fits_and_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first, others = "".join(SVM[:150]), "".join(SVM[150:])
    (tmp_path / "a.svm").write_text(first)
    (tmp_path / "b.svm").write_text(others)

    def said(*command: str) -> dict[str, Any]:
        capsys.readouterr()
        assert run([*command, "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)["result"]

    said("ingest", "a.svm", "s.zarr", "--split", "0.7")
    said("ingest", "b.svm", "s.zarr", "--append")
    assert run(["ingest", "b.svm", "s.zarr", "--append", "--split", "0.8"]) == 2
    assert "--split 0.8 does not fit: the store records 0.7" in capsys.readouterr().err
    said("ingest", "a.svm", "b.svm", "plain.zarr")
    assert (said("inspect", "s.zarr")["split"], said("inspect", "plain.zarr")["split"]) == (0.7, None)
    capsys.readouterr()
    assert run(["inspect", "s.zarr"]) == run(["inspect", "plain.zarr"]) == 0
    assert capsys.readouterr().out.count("this is for all rows; bigsvm plan considers the split") == 1

    recorded, typed = said("fit", "s.zarr", "-o", "m"), said("fit", "plain.zarr", "--split", "0.7", "-o", "m2")
    assert recorded["n_samples"] == TRAIN.sum()
    assert recorded["held_out"] == typed["held_out"]
    assert (tmp_path / "m" / "coef.npy").read_bytes() == (tmp_path / "m2" / "coef.npy").read_bytes()
    assert said("evaluate", "m", "s.zarr", "--split")["accuracy"] == recorded["held_out"]["accuracy"]
    assert said("certify", "m", "s.zarr")["n_samples"] == TRAIN.sum()
    for split, n in (
        ((), TRAIN.sum()),
        (("--split", "1"), N),
        (("--split", "0.5"), (hashed(np.arange(N)) < 0.5).sum()),
    ):
        assert said("plan", "s.zarr", *split)["n_samples"] == n
        assert said("tune", "s.zarr", *split, "--c-grid", "1", "--folds", "2")["n_samples"] == n
    every = said("fit", "s.zarr", "--split", "1", "-o", "m3")
    assert "held_out" not in every
    assert every["n_samples"] == N
    refit = said("tune", "s.zarr", "--c-grid", "1", "--folds", "2", "--refit", "-o", "m4")["refit"]
    assert refit["held_out"] == recorded["held_out"]
    for command in (("evaluate", "m3", "s.zarr"), ("predict", "m3", "s.zarr", "-o", "p.csv")):
        assert said(*command).get("n_rows", N) == N  # what is done to a store that is no training takes all of it
    said("dump", "s.zarr", "all.svm")
    assert len((tmp_path / "all.svm").read_text().splitlines()) == N

    # In Python a path is that of the command line; what is open was opened as somebody wanted it.
    assert bigsvm.fit("s.zarr", **OPTIONS).figures["n_samples"] == TRAIN.sum()
    assert bigsvm.fit("s.zarr", split=1, **OPTIONS).figures["n_samples"] == N
    assert bigsvm.fit(open_store("s.zarr"), **OPTIONS).figures["n_samples"] == N
    assert bigsvm.fit_path("s.zarr", [1.0], **OPTIONS)[0].figures["n_samples"] == TRAIN.sum()
    assert bigsvm.tune("s.zarr", Cs=[1.0], folds=2, memory="64MiB").figures["n_samples"] == TRAIN.sum()
    kept = open_store("s.zarr", split="recorded", part="test")
    assert kept.n_samples == (~TRAIN).sum()

    document = json.loads((tmp_path / "s.zarr" / "zarr.json").read_text())
    document["attributes"]["bigsvm-split"] = 7
    shutil.rmtree(tmp_path / "s.zarr" / ".bigsvm", ignore_errors=True)
    (tmp_path / "s.zarr" / "zarr.json").write_text(json.dumps(document))
    for seal in tmp_path.glob("s.zarr/*manifest*"):
        seal.unlink()
    assert run(["inspect", "s.zarr"]) == 65
    assert "bigsvm-split is 7" in capsys.readouterr().err


def test_a_side_without_rows_is_refused() -> None:
    with pytest.raises(DataError, match="none of the 203 rows to test on"):
        open_store((X, LABELS), split=1 - 1e-9)
    with pytest.raises(DataError, match="none of the 203 rows to train on"):
        open_store((X, LABELS), split=1e-9)
    with pytest.raises(UsageError, match="none were kept back"):
        open_store((X, LABELS), part="test", like={})
    assert others_of(open_store((X, LABELS))) is None


class TestOneSide(RowBlocksContract):
    """The rows of one side, with those of the other between them."""

    names_given_rows = False

    def make(self, X, labels, weights, folder):
        n = 3 * len(X)
        mine = np.flatnonzero(hashed(np.arange(n)) < 0.5)[: len(X)]
        n = int(mine[-1]) + 1  # and no further row of that side
        others = np.setdiff1d(np.arange(n), mine)
        given = np.zeros((n, X.shape[1]), X.dtype)
        given[mine], given[others] = X, X[0]
        names = np.full(n, labels[0], np.asarray(labels).dtype)
        names[mine] = labels
        weighing = None
        if weights is not None:
            weighing = np.ones(n)
            weighing[mine] = weights
        return SplitRows(open_store(formats.written(folder / "s.zarr", given, names, weighing)), 0.5, "train")


SITE = np.array(["north", "south", "east"])[np.arange(N) % 3]
HERE = {"": np.ones(N, bool), "site == false": SITE != "east", "site == true": SITE == "east"}


def data(path: Path, rows: np.ndarray, unlabelled: int = 0) -> str:
    """These rows with a column `site`, as a store or as Parquet; every `unlabelled`-th has no label."""
    y = np.where(rows % unlabelled == 0 if unlabelled else np.zeros(len(rows), bool), np.nan, LABELS[rows])
    if path.suffix == ".zarr":
        formats.foreign(path, X[rows], y)
        zarr.open_group(path)["obs"].create_array("site", data=SITE[rows] == "east", chunks=(16,))
    else:
        values = {f"x{k}": X[rows, k] for k in range(X.shape[1])}
        frame = pd.DataFrame({**values, "site": SITE[rows] == "east", "label": y})
        frame.to_parquet(path)
    return str(path)


COLUMNS = ("--columns", ",".join(f"x{k}" for k in range(X.shape[1])))


@pairs_of(fitted=[*HERE], asked=[None, *HERE], unlabelled=[0, 5], form=["parquet", "zarr"])
def test_only_rows_that_the_model_has_not_seen_are_measured(
    fitted: str, asked: str | None, unlabelled: int, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever condition chooses rows to be measured, and whatever rows were left out of the fit."""
    source = data(tmp_path / f"rows.{form}", np.arange(N), unlabelled)
    columns = COLUMNS if form == "parquet" else ()
    missing = ("--missing", "drop") if unlabelled else ()
    model = str(tmp_path / "m")
    where = ("--rows", fitted) if fitted else ()
    assert run(["fit", source, *columns, *missing, *where, "--split", "0.7", "-o", model, "--json"]) == 0
    there = np.arange(N) % unlabelled != 0 if unlabelled else np.ones(N, bool)
    assert json.loads(capsys.readouterr().out)["result"]["n_samples"] == (TRAIN & HERE[fitted] & there).sum()
    where = ("--rows", asked) if asked else ()
    assert run(["evaluate", model, source, *missing, *where, "--split", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["result"]
    mine = ~TRAIN & HERE[asked or fitted] & there
    assert found["n_rows"] == mine.sum()
    right = bigsvm.load_model(model).predict(X[mine]) == LABELS[mine]
    assert found["accuracy"] == pytest.approx(right.mean(), abs=1e-12)


@pytest.mark.parametrize("form", ["parquet", "zarr"])
@pytest.mark.parametrize(
    ("rows", "new"),
    [
        (np.arange(150), True),  # the store of the fit
        (np.arange(N), True),  # rows were added to it
        (np.arange(149), False),
        (np.arange(1, N), False),
        (np.r_[1, 0, 2:N], False),
        (np.r_[0:100, 110, 101:N], False),
    ],
)
def test_rows_of_another_store_are_not_called_new(
    rows: np.ndarray, new: bool, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = COLUMNS if form == "parquet" else ()
    model = str(tmp_path / "m")
    fitted = data(tmp_path / f"fitted.{form}", np.arange(150))
    assert run(["fit", fitted, *columns, "--split", "0.7", "-o", model]) == 0
    measured = data(tmp_path / f"measured.{form}", rows)
    for _ in range(2):  # read, and then remembered
        capsys.readouterr()
        assert run(["evaluate", model, measured, "--split", "--json"]) == (0 if new else 65)
        said = json.loads(capsys.readouterr().out)
        if new:
            assert said["result"]["n_rows"] == (~TRAIN[: len(rows)]).sum()
        else:
            assert "not the" in said["error"]["message"]
            assert "the store of the fit" in said["error"]["hint"]


def test_models_of_earlier_versions_keep_the_sides_that_they_were_trained_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They numbered the rows that a condition and missing labels had left."""
    source = data(tmp_path / "rows.zarr", np.arange(N))
    mine = np.flatnonzero(HERE["site == true"])
    side = hashed(np.arange(len(mine))) < 0.7
    result = bigsvm.fit(SplitRows(open_store(source, rows="site == true"), 0.7, "train", "rows left"), **OPTIONS)
    assert result.model.about["rows"]["split"] == 0.7
    assert "split_by" not in result.model.about["rows"]
    assert result.figures["n_samples"] == side.sum()
    result.save_model(tmp_path / "m")
    assert bigsvm.certify(tmp_path / "m", source)["n_samples"] == side.sum()
    evaluate_it = ["evaluate", str(tmp_path / "m"), source, "--split", "--json"]
    assert run(evaluate_it) == 0
    assert json.loads(capsys.readouterr().out)["result"]["n_rows"] == (~side).sum()
    assert run([*evaluate_it, "--rows", "site == false"]) == 2
    assert "earlier version" in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize("kind", ["arrays", "zarr", "csv"])
@pytest.mark.parametrize("labels", [{}, {"positive": "2"}, {"label_map": {"0": "1"}}], ids=["plain", "positive", "map"])
def test_a_search_counts_the_classes_of_a_split(kind: str, labels: dict[str, Any], tmp_path: Path) -> None:
    """Also where labels are not known without reading X, or are changed."""
    y = np.arange(N) % 3
    source: Any = (X, y)
    if kind == "zarr":
        source = formats.written(tmp_path / "s.zarr", X.astype(np.float32), y)  # as searches of stores have rows
    elif kind == "csv":
        source = str(tmp_path / "rows.csv")
        pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).assign(label=y).to_csv(source, index=False)
    opened = open_store(source, split=0.7, **labels)
    found = bigsvm.tune(opened, Cs=[1.0], folds=2, class_weights=["balanced"], memory="64MiB")
    assert found.figures["n_samples"] == TRAIN.sum()
    read = getattr(opened, "labels_between", None)
    assert (read is None) == (kind == "arrays")
    if read is not None:
        np.testing.assert_array_equal(
            read(3, 40), np.concatenate([opened.read(ref).y for ref in opened.refs(11)])[3:40]
        )
