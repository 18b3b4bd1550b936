"""Rows in a bucket of a real S3-speaking server (moto), behind a proxy that does what networks and stores do."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import bigsvm
from bigsvm.cli.main import run
from bigsvm.errors import DataError, MissingInput, UsageError
from bigsvm.store.remote.names import here
from bigsvm.store.remote.settings import storing
from tests.store.remote_servers import FORMS, SECRET, deadlines_over_without, has_rows, matrix, proxy, write_forms

obstore = pytest.importorskip("obstore")
pytest.importorskip("moto.server", reason="moto is not installed")

Bucket = Callable[..., Any]


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows in every form; not to be changed."""
    folder = tmp_path_factory.mktemp("forms")
    write_forms(folder)
    return folder


@pytest.fixture(scope="module")
def s3(forms: Path) -> Iterator[tuple[str, Any]]:
    """The URL of an S3 server that has the forms in the bucket `rows`, and the bucket as obstore opens it."""
    with proxy.s3_server() as url:
        urllib.request.urlopen(urllib.request.Request(f"{url}/rows", method="PUT")).close()
        store = obstore.store.S3Store(
            "rows", endpoint=url, access_key_id="key", secret_access_key=SECRET, region="us-east-1",
            client_options={"allow_http": True},
        )  # fmt: skip
        for path in forms.rglob("*"):
            if path.is_file():
                obstore.put(store, f"sets/{path.relative_to(forms)}", path.read_bytes())
        yield url, store


@pytest.fixture
def bucket(s3: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """Puts a proxy before the server, and the environment as AWS's tools want it."""
    monkeypatch.setenv("BIGSVM_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setattr("bigsvm.store.remote.faults._FIRST_WAIT_S", 0.005)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    for name, value in (("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", SECRET), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    with ExitStack() as stack:

        def before(**faults: Any) -> Any:
            server = stack.enter_context(proxy.Proxy(s3[0], **faults).running())
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
            return server

        yield before


@pytest.mark.parametrize("form", [*FORMS, "folder/*.parquet"])
def test_every_form_has_the_rows(form: str, bucket: Bucket) -> None:
    bucket()
    assert has_rows(bigsvm.open_store(f"s3://rows/sets/{form}"))


def test_passing_faults_pass(bucket: Bucket) -> None:
    # Held against the manifest, and against ETags.
    for form, faults in (("sealed.zarr", proxy.PASSING), ("v3.zarr", ("flip", "reset"))):
        server = bucket(faults=faults, rate=0.3)
        assert has_rows(bigsvm.open_store(f"s3://rows/sets/{form}"))
        assert sum(server.spoiled.values()) > 3
    assert "flip" in server.spoiled


def test_a_dead_key_is_refused_by_name(bucket: Bucket, capsys: Any, forms: Path, tmp_path: Path) -> None:
    server, dead = bucket(), "X/data/c/1"
    server.dead.add(dead)
    with deadlines_over_without(dead, forms, tmp_path / "scratch"):
        assert run(["inspect", "s3://rows/sets/sealed.zarr", "--storage-option", "deadline=0.4"]) == 74
    assert f"s3://rows/sets/sealed.zarr/{dead}: given up after" in capsys.readouterr().err


@pytest.mark.parametrize(("form", "key"), [("sealed.zarr", "X/indices/c/0"), ("v3.zarr", "X/c/1/0")])
def test_bytes_that_are_always_wrong_never_become_rows(form: str, key: str, bucket: Bucket, tmp_path: Path) -> None:
    bucket().wrong.add(key)
    with pytest.raises(DataError, match=key):
        bigsvm.open_store(f"s3://rows/sets/{form}")
    assert not list(tmp_path.rglob(f"{form}/{key}"))


def test_a_bucket_whose_tags_are_no_digests(bucket: Bucket, capsys: Any) -> None:
    bucket().wrong.add("rows.svm")  # encrypted: the bytes that are given out have not the MD5 of the tag
    with pytest.raises(DataError, match=r"rows\.svm: its bytes are not those of its ETag .*etag\": \"opaque"):
        bigsvm.ingest("s3://rows/sets/rows.svm", "nowhere.zarr")
    with storing({"etag": "opaque"}), here("s3://rows/sets/rows.svm") as path:
        assert Path(path).stat().st_size > 0


def test_an_object_that_is_put_anew_is_another_copy(bucket: Bucket, s3: tuple[str, Any], tmp_path: Path) -> None:
    bucket()
    text = "a,b,label\n" + "".join(f"{k},{k % 3},{k % 2}\n" for k in range(20))
    obstore.put(s3[1], "sets/changing.csv", text.encode())
    first = bigsvm.open_store("s3://rows/sets/changing.csv")
    obstore.put(s3[1], "sets/changing.csv", text.replace("19,1,1", "19,2,1").encode())
    second = bigsvm.open_store("s3://rows/sets/changing.csv")
    assert first.identity != second.identity
    assert first.read(first.refs(64)[0]).X[-1].tolist() == [19, 1]
    assert second.read(second.refs(64)[0]).X[-1].tolist() == [19, 2]
    assert len(list(tmp_path.rglob("objects.json"))) == 2


def test_large_objects_come_in_pieces(bucket: Bucket, s3: tuple[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    text = b"".join(b"%d 1:%d 3:1.5\n" % (k % 2, k) for k in range(40_000))
    obstore.put(s3[1], "sets/large.svm", text, use_multipart=False)
    monkeypatch.setattr("bigsvm.store.remote.fetch._LARGEST_PIECE", 1 << 16)
    server = bucket(faults=("short", "503", "flip"), rate=0.2)
    bigsvm.ingest("s3://rows/sets/large.svm", tmp_path / "large.zarr")
    assert server.seen["GET /rows/sets/large.svm"] >= len(text) >> 16
    assert next(tmp_path.rglob("objects-*/large.svm")).read_bytes() == text


def test_options_and_the_environment(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    server = bucket()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    options = {"endpoint": server.url, "access_key_id": "key", "secret_access_key": SECRET}
    assert has_rows(bigsvm.open_store("s3://rows/sets/sealed.zarr", storage_options=options))
    arguments = ["inspect", "s3://rows/sets/v3.zarr", "--matrix", "layers/twice", "--json"]
    assert run([*arguments, *(f"--storage-option={name}={value}" for name, value in options.items())]) == 0
    assert '"path": "s3://rows/sets/v3.zarr"' in capsys.readouterr().out
    with pytest.raises(UsageError, match=r"a storage option is unknown \(given: nonsense\)"):
        bigsvm.open_store("s3://rows/sets/rows.parquet", storage_options={"nonsense": SECRET})


def test_what_is_not_there_or_makes_no_sense(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket()
    for name, error, said in (
        ("s3://rows/sets/nothing.zarr", MissingInput, "nothing is there"),
        ("s3://rows/sets/*.nothing", MissingInput, "no objects of that name"),
        ("s3://no-such-bucket/x.zarr", MissingInput, "HTTP 404"),
        ("s3://rows", UsageError, "only folders"),
    ):
        with pytest.raises(error, match=said):
            bigsvm.open_store(name)
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(UsageError, match="AWS_PROFILE"):
        bigsvm.open_store("s3://rows/sets/rows.parquet")


def test_a_fit_on_the_command_line(bucket: Bucket, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    bucket(faults=("503", "reset", "404", "403"), rate=0.3)
    monkeypatch.chdir(tmp_path)
    y = matrix()[1]
    assert run(["fit", "s3://rows/sets/sealed.zarr", "--loss", "hinge", "--memory", "64MiB", "--scratch", "here"]) == 0
    assert list((tmp_path / "here" / "bigsvm").glob("objects-*"))
    assert '"store": "s3://rows/sets/sealed.zarr"' in (tmp_path / "sealed.model.run" / "run.json").read_text()
    assert run(["certify", "sealed.model", "s3://rows/sets/sealed.zarr", "--json"]) == 0
    assert run(["verify", "s3://rows/sets/sealed.zarr", "--quiet"]) == 0
    assert run(["predict", "sealed.model", "s3://rows/sets/rows.svm.gz", "-o", "out.csv"]) == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == len(y)
    capsys.readouterr()
    assert (
        run(["fit", "s3://rows/sets/sealed.zarr", "--resume", "--loss", "hinge", "--memory=64MiB", "--scratch=here"])
        == 0
    )
    assert "nothing was repeated" in capsys.readouterr().out
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_files_in_subfolders_are_not_left_out_in_silence(bucket: Bucket, s3: tuple[str, Any]) -> None:
    bucket()
    text = b"a,b,label\n" + b"".join(b"%d,%d,%d\n" % (k, k % 3, k % 2) for k in range(20))
    for key in ("a.csv", "sub/c.csv", ".no/d.csv", "sub/_no/e.csv", "sub/f.txt"):
        obstore.put(s3[1], f"nest/{key}", text)
    store = bigsvm.open_store("s3://rows/nest")
    assert store.n_samples == 20
    (warning,) = store.warnings
    assert warning.startswith("s3://rows/nest: files in subfolders are left out: 1 (sub/c.csv); ")
    assert warning.endswith("'s3://rows/nest/*/*.csv'")
    assert bigsvm.open_store("s3://rows/nest/*/*.csv").n_samples == 20
