"""gs:// and az://: rows by way of a server that speaks enough of both services: list, head and ranges."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import pytest

import bigsvm
from bigsvm.errors import BigSVMError, DataError, MissingInput, UsageError

pytest.importorskip("obstore")

SECRET = "cGxhbnRlZC05ZDQx"  # base64, as an account key is
rng = np.random.default_rng(2)
X = np.where(rng.random((60, 5)) < 0.5, rng.standard_normal((60, 5)), 0.0)
y = np.where(X[:, 0] > 0, 1, -1)
_XML = '<?xml version="1.0" encoding="utf-8"?>'


class Cloud(ThreadingHTTPServer):
    """Objects by key.

    style : gs or az;  seen : requests by method and path;  signed : how many came with a signature
    """

    def __init__(self, style: str, objects: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.style, self.objects, self.seen, self.signed = style, objects, Counter[str](), 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.refused = False

    @property
    def root(self) -> str:
        """What stands before keys in a path: bucket, or account and container."""
        return "/bucket" if self.style == "gs" else "/account/bucket"


def tag_of(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Cloud

    def log_message(self, *_: object) -> None: ...

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        cloud, url = self.server, urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        cloud.seen[f"{self.command} {url.path}"] += 1
        cloud.signed += "SharedKey" in self.headers.get("authorization", "") or "sig" in asked
        if cloud.refused:
            return self._answer(403, b"<Error><Code>AuthorizationFailure</Code></Error>")
        if "list-type" in asked or asked.get("comp") == "list":
            return self._answer(200, self._listing(asked.get("prefix", "")), {"content-type": "application/xml"})
        content = cloud.objects.get(unquote(url.path).removeprefix(f"{cloud.root}/"))
        if content is None:
            return self._answer(404, b"<Error><Code>NotFound</Code></Error>")
        about = {"etag": f'"{tag_of(content)}"', "last-modified": formatdate(1e9, usegmt=True)}
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range") or self.headers.get("x-ms-range") or "")
        if not found:
            return self._answer(200, content, about)
        start, stop = int(found[1]), min(int(found[2]) + 1, len(content))
        about["content-range"] = f"bytes {start}-{stop - 1}/{len(content)}"
        return self._answer(206, content[start:stop], about)

    def _listing(self, prefix: str) -> bytes:
        found = sorted((key, value) for key, value in self.server.objects.items() if key.startswith(prefix))
        if self.server.style == "gs":
            items = "".join(
                f"<Contents><Key>{key}</Key><LastModified>2001-09-09T01:46:40.000Z</LastModified>"
                f'<ETag>"{tag_of(value)}"</ETag><Size>{len(value)}</Size></Contents>'
                for key, value in found
            )
            return f"{_XML}<ListBucketResult>{items}</ListBucketResult>".encode()
        items = "".join(
            f"<Blob><Name>{key}</Name><Properties><Last-Modified>{formatdate(1e9, usegmt=True)}</Last-Modified>"
            f"<Content-Length>{len(value)}</Content-Length><Content-Type>x/y</Content-Type>"
            f"<Etag>{tag_of(value)}</Etag></Properties></Blob>"
            for key, value in found
        )
        return f"{_XML}<EnumerationResults><Blobs>{items}</Blobs><NextMarker/></EnumerationResults>".encode()

    def _answer(self, code: int, content: bytes, about: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"content-length": str(len(content)), **(about or {})}.items():
            self.send_header(name, value)
        if self.server.style == "az":
            self.send_header("x-ms-version", "2023-11-03")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@pytest.fixture(params=["gs", "az"])
def cloud(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """A sealed store and a table in a bucket."""
    monkeypatch.setenv("BIGSVM_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setattr("bigsvm.store.remote.faults._FIRST_WAIT_S", 0.005)
    bigsvm.ingest((X, y), tmp_path / "rows.zarr")
    files = {f"sets/{path.relative_to(tmp_path)}": path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    lines = ["a,b,c,d,e,label", *(",".join(map(str, [*row, t])) for row, t in zip(X.tolist(), y.tolist(), strict=True))]
    server = Cloud(request.param, {**files, "sets/rows.csv": "\n".join(lines).encode() + b"\n"})
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def options(cloud: Cloud) -> dict[str, str]:
    if cloud.style == "gs":
        return {"base_url": cloud.url, "skip_signature": "true"}
    return {"endpoint": f"{cloud.url}/account", "account_name": "account", "account_key": SECRET}


def test_rows_of_a_cloud_are_those_at_home(cloud: Cloud, tmp_path: Path) -> None:
    home = bigsvm.open_store(tmp_path / "rows.zarr")
    there = bigsvm.open_store(f"{cloud.style}://bucket/sets/rows.zarr", storage_options=options(cloud))
    assert there.content_fingerprint == home.content_fingerprint
    np.testing.assert_array_equal(np.concatenate([np.asarray(there.read(ref).X) for ref in there.refs(17)]), X)
    table = bigsvm.open_store(f"{cloud.style}://bucket/sets/rows.csv", storage_options=options(cloud))
    np.testing.assert_array_equal(np.asarray(table.read(table.refs(60)[0]).X), X)
    assert (cloud.signed > 0) == (cloud.style == "az")
    told = [
        path for path in (tmp_path / "scratch").rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert told == []


def test_what_a_cloud_refuses_lacks_or_gets_wrong(cloud: Cloud) -> None:
    name, given = f"{cloud.style}://bucket/sets/rows.zarr", options(cloud)
    with pytest.raises(MissingInput, match=r"rows\.parquet"):
        bigsvm.open_store(f"{name[:-5]}.parquet", storage_options=given)
    with pytest.raises(UsageError, match="storage option is unknown") as unknown:
        bigsvm.open_store(name, storage_options={**given, "nonsense": "a-secret"})
    assert "a-secret" not in str(unknown.value)
    cloud.refused = True
    with pytest.raises(BigSVMError) as refused:
        bigsvm.open_store(name, storage_options=given)
    assert "\n" not in str(refused.value)
    assert SECRET not in str(refused.value)
    cloud.refused = False
    key = next(key for key in cloud.objects if "/X/" in key and key.endswith("/0"))
    cloud.objects[key] = bytes(len(cloud.objects[key]))
    with pytest.raises(DataError, match=re.escape(key)):
        bigsvm.open_store(name, storage_options=given)


def test_keys_that_are_no_files(cloud: Cloud) -> None:
    """Consoles make an object of a folder; a name with a bracket is itself before it is a pattern."""
    base, given = f"{cloud.style}://bucket", options(cloud)
    folders = ("sets/rows.zarr/", "sets/rows.zarr/X/", "parts/", "parts/b.csv/", "parts/b.csv/c")
    cloud.objects |= dict.fromkeys(folders, b"")
    cloud.objects |= dict.fromkeys(("parts/a[1].csv", "parts/_SUCCESS"), cloud.objects["sets/rows.csv"])
    for name in ("sets/rows.zarr", "parts", "parts/a[1].csv", "parts/*.csv"):
        store = bigsvm.open_store(f"{base}/{name}", storage_options=given)
        np.testing.assert_array_equal(np.asarray(store.read(store.refs(60)[0]).X), X)
    cloud.objects["parts//a.csv"] = b""
    with pytest.raises(DataError, match="a key there has an empty part"):
        bigsvm.open_store(f"{base}/parts", storage_options=given)
