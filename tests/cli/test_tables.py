"""Tables on the command line: every command takes them, and a model reads other tables as the one it was made of."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.cli.conftest import Bigsvm

CITIES = ["Rome", "New York", "Oslo", "Bonn"]


def people(path: Path, n: int, cities: int, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    city, age = rng.integers(0, cities, n), rng.normal(size=n).round(3)
    member = np.where(age + (city == 1) + rng.normal(size=n) / 5 > 0, "yes", "no")
    names = ["age", "city", "member"]
    rows = [",".join(map(str, row)) for row in zip(age, np.array(CITIES)[city], member, strict=True)]
    path.write_text("\n".join([",".join(names), *rows]) + "\n")
    return path


def ok(said):
    assert said.code == 0, said.err
    return said


def test_a_first_day_with_a_table(bigsvm: Bigsvm, tmp_path: Path) -> None:
    people(tmp_path / "train.csv", 200, 4)
    people(tmp_path / "test.csv", 60, 3, seed=1)  # one of the cities is not in it
    label = ("--label", "member")
    found = ok(bigsvm("inspect", "train.csv", *label, "--json")).document["result"]
    assert (found["n_samples"], found["n_features"], found["layout"], found["classes"]) == (
        200,
        5,
        "csr",
        ["no", "yes"],
    )
    assert ok(bigsvm("plan", "train.csv", *label, "--json")).document["result"]
    fitted = ok(bigsvm("fit", "train.csv", *label, "-o", "m", "--json")).document["result"]
    assert fitted["relative_gap"] <= 1e-3
    proved = ok(bigsvm("certify", "m", "train.csv", *label, "--json")).document["result"]
    assert proved["relative_gap"] == pytest.approx(fitted["relative_gap"], abs=1e-9)
    assert json.loads((tmp_path / "m" / "rows.json").read_text())["features"][:2] == ["age", "city=Bonn"]
    top = ok(bigsvm("inspect", "m", "--top", "2", "--json")).document["result"]["top"]
    assert [entry["class"] for entry in top] == ["no", "yes"]
    assert top[1]["features"][0]["feature"] == "age"
    assert {item["feature"] for item in top[1]["features"]} == {"age", "city=New York"}
    assert "for yes" in ok(bigsvm("inspect", "m", "--top", "2")).out
    assert bigsvm("inspect", "train.csv", *label, "--top", "2").code == 2
    assert bigsvm("inspect", "no.model", "--top", "2").code == 66  # what is wrong is the path
    quality = ok(bigsvm("evaluate", "m", "test.csv", *label, "--json")).document["result"]
    assert quality["accuracy"] > 0.85
    lines = ok(bigsvm("predict", "m", "test.csv", *label)).out.splitlines()
    # What is not in a model's columns is left out, and their order is the model's.
    rows = [line.split(",") for line in (tmp_path / "test.csv").read_text().splitlines()]
    (tmp_path / "other.csv").write_text("\n".join(f"{row[1]},x,{row[0]}" for row in rows).replace(",x,", ",note,", 1))
    assert ok(bigsvm("predict", "m", "other.csv")).out.splitlines() == lines
    ok(bigsvm("ingest", "train.csv", "t.zarr", *label))
    again = ok(bigsvm("fit", "t.zarr", "-o", "m2", "--json")).document["result"]
    assert again["content_fingerprint"] == fitted["content_fingerprint"]
    for name in ("coef.npy", "intercept.npy", "alpha.npy"):
        assert (tmp_path / "m" / name).read_bytes() == (tmp_path / "m2" / name).read_bytes()
    assert ok(bigsvm("predict", "m2", "test.csv", *label)).out.splitlines() == lines


def test_options_of_tables_are_refused_elsewhere(bigsvm: Bigsvm, store: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.svm").write_text("1 1:1\n-1 2:1\n")
    for command in (
        ("fit", store, "--columns", "a"),
        ("inspect", store, "--hash-bits", "4"),
        ("predict", model, "t.svm", "--hash-bits", "4"),
        ("ingest", "t.svm", "t.zarr", "--columns", "a,b"),
    ):
        said = bigsvm(*command)
        assert said.code == 2
        assert "--columns" in said.err or "--hash-bits" in said.err


def test_a_resumed_fit_opens_the_same_rows(bigsvm: Bigsvm, tmp_path: Path) -> None:
    people(tmp_path / "t.csv", 100, 4)
    fit = ("fit", "t.csv", "--label", "member", "--columns", "age,city", "--hash-bits", "3", "-o", "m")
    assert ok(bigsvm(*fit, "--json")).document["result"]["n_features"] == 9
    said = ok(bigsvm(*fit, "--resume"))
    assert "nothing was repeated" in said.out
    assert bigsvm("resume", "m.run").code == 0
    (tmp_path / "m.run" / "checkpoint").mkdir()
    (tmp_path / "m.run" / "checkpoint" / "x").touch()
    other = bigsvm("fit", "t.csv", "--label", "member", "--hash-bits", "4", "-o", "m", "--resume")
    assert other.code == 65
    assert "rows was" in other.err


def test_damaged_names_are_refused(bigsvm: Bigsvm, tmp_path: Path) -> None:
    people(tmp_path / "t.csv", 100, 4)
    ok(bigsvm("fit", "t.csv", "--label", "member", "-o", "m"))
    text = (tmp_path / "m" / "rows.json").read_text()
    (tmp_path / "m" / "rows.json").write_text(text.replace("Bonn", "Rome"))
    said = bigsvm("predict", "m", "t.csv", "--label", "member")
    assert said.code == 65
    assert "rows.json" in said.err


def test_a_model_without_names_does_not_score_text(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    """Each text of this very table would be a feature: the scores were arbitrary, and nothing was said."""
    Path("people.csv").write_text("age,city,label\n30,Oslo,-1\n40,Rome,1\n")
    for words in (["predict", model, "people.csv"], ["evaluate", model, "people.csv"]):
        said = bigsvm(*words)
        assert (said.code, said.out, len(said.err.splitlines())) == (65, "", 1)
        assert "cannot know what the text column 'city' stands for" in said.err
    said = bigsvm("predict", model, "people.csv", "--columns", "age")
    assert "the rows have 1 feature and the model" in said.err


def test_text_in_parquet_is_refused_with_the_formats_that_have_it(bigsvm: Bigsvm) -> None:
    table = pa.table({"age": [30.0, 40.0], "city": ["Oslo", "Rome"], "label": [0, 1]})
    pa.parquet.write_table(table, "people.parquet")
    said = bigsvm("fit", "people.parquet")
    assert (said.code, len(said.err.splitlines())) == (65, 1)
    assert "write the table as CSV or Feather, in which text columns become features" in said.err
