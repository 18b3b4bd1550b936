"""One bucket, or one web server, as obstore reaches it: list, head, get; every failure is a `Fault` of ours."""

from __future__ import annotations

import base64
import os
import queue
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from bigsvm.errors import UsageError
from bigsvm.files.paths import BUCKETS
from bigsvm.store.remote.faults import Changed, Fault, Passing, Silence, fault_of
from bigsvm.store.remote.names import with_secrets, without_secrets
from bigsvm.store.remote.settings import Storage

_CONNECT_S = 5
_PAGE = 1000
_STREAMED, _STREAM = 256 << 10, "1d"
_LOOK_S, _HURRY = 0.2, 8
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
_SETTINGS = {
    "s3": "look at AWS_REGION, AWS_ENDPOINT_URL and AWS_PROFILE",
    "gs": "look at GOOGLE_APPLICATION_CREDENTIALS",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or another credential",
    "http": "look at the URL",
    "https": "look at the URL",
}


@dataclass(frozen=True)
class Listed:
    """An object as it was listed: every later reading is held against size and tag.

    key : in the bucket, or of the path of a URL
    tag : ETag without its quotation marks; of a server that has none the time of its last change; or ''
    """

    key: str
    size: int
    tag: str


class Client:
    """Objects of the bucket or server that `name` is of; `root` is the key that it names.

    Raises
    ------
    UsageError : obstore is not installed, or an option is unknown to it or makes no sense.
    """

    def __init__(self, name: str, storage: Storage) -> None:
        self.name = without_secrets(name)
        scheme, _, rest = self.name.partition("://")
        self.lists = scheme in BUCKETS
        host, _, path = rest.partition("/")
        self.root = path.strip("/") if self.lists else unquote(path).strip("/")
        self._base = f"{scheme}://{host}"
        self.place = ""
        """Where the bucket is, beside its name; for digests only."""
        if not host:
            raise UsageError("names no bucket" if self.lists else "names no host", self.name)
        if self.root and any(part in ("", ".", "..") for part in self.root.split("/")):
            raise UsageError("an empty part, . or .. in its path", self.name, "name the key as the store lists it")
        self.md5_tags = scheme in ("s3", "gs")
        try:
            import obstore
        except ImportError:
            raise UsageError(
                f"{scheme}:// needs obstore, which is not installed", self.name, "pip install 'bigsvm[remote]'"
            ) from None
        self._obstore: Any = obstore
        self._timeout_s = storage.timeout_s
        self._silences: Counter[str] = Counter()
        try:
            self._store = self._open(scheme, host, storage)
        except UsageError:
            raise
        except Exception as error:  # of obstore, each kind its own; its text may repeat a value
            unknown = type(error).__name__ in ("UnknownConfigurationKeyError", "ValueError", "TypeError")
            what = "a storage option is unknown" if unknown and storage.options else "the store cannot be reached so"
            options = f"given: {', '.join(sorted(storage.options))}" if storage.options else ""
            raise UsageError(what, self.name, options or _SETTINGS[scheme]) from None

    def _open(self, scheme: str, host: str, storage: Storage) -> Any:
        client: dict[str, Any] = {
            "timeout": f"{max(storage.timeout_s, 0.001):g}s",
            "connect_timeout": f"{min(_CONNECT_S, storage.timeout_s):g}s",
        }
        retry = {"max_retries": 0}
        options = dict(storage.options)
        if not self.lists:
            if options:
                raise UsageError("storage options are for buckets", self.name, "leave --storage-option out")
            url = urlsplit(with_secrets(self.name))
            if "@" in url.netloc:
                user = unquote(url.username or "") + ":" + unquote(url.password or "")
                client["default_headers"] = {"authorization": "Basic " + base64.b64encode(user.encode()).decode()}
            client["allow_http"] = scheme == "http"
            bare = urlunsplit((scheme, host, "", url.query, ""))
            http = self._obstore.store.HTTPStore
            self._patient = http.from_url(bare, client_options={**client, "timeout": _STREAM}, retry_config=retry)
            return http.from_url(bare, client_options=client, retry_config=retry)
        endpoints = [
            value for name, value in options.items() if name.endswith(("endpoint", "endpoint_url", "base_url"))
        ]
        endpoints += [os.environ.get(name, "") for name in _ENDPOINTS]
        self.place = " ".join(endpoints)
        if any(value.lower().startswith("http://") for value in endpoints):
            client["allow_http"] = True
        more = self._profile() if scheme == "s3" else {}
        self._patient = self._obstore.store.from_url(
            self._base, client_options={**client, "timeout": _STREAM}, retry_config=retry, **more, **options
        )
        return self._obstore.store.from_url(self._base, client_options=client, retry_config=retry, **more, **options)

    def _profile(self) -> dict[str, Any]:
        """The credentials of AWS_PROFILE, which obstore takes from boto3."""
        if "AWS_PROFILE" not in os.environ or "AWS_ACCESS_KEY_ID" in os.environ:
            return {}
        try:
            import boto3  # type: ignore[import-not-found, unused-ignore]
            from obstore.auth.boto3 import Boto3CredentialProvider
        except ImportError:
            hint = "pip install boto3, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            raise UsageError("AWS_PROFILE needs boto3, which is not installed", self.name, hint) from None
        session = boto3.Session()
        region = {"region": session.region_name} if session.region_name else {}
        return {"credential_provider": Boto3CredentialProvider(session), **region}

    def uri(self, key: str) -> str:
        """The name of an object, for messages."""
        return f"{self._base}/{key}"

    def pages(self, prefix: str, after: str) -> Iterator[list[Listed]]:
        """Objects below a prefix whose keys come after `after`, a page at a time.  Raises Fault."""
        try:
            stream = self._obstore.list(self._store, prefix or None, offset=after or None, chunk_size=_PAGE)
            for page in stream:
                yield [_listed(meta) for meta in page]
        except Exception as error:
            raise fault_of(error) from None

    def head(self, key: str) -> Listed:
        """Size and tag of an object.  Raises Fault."""
        try:
            return _listed(self._obstore.head(self._store, key))
        except Exception as error:
            raise fault_of(error) from None

    def get(self, listed: Listed, start: int, stop: int) -> memoryview:
        """Bytes [start, stop) of an object, which is still the one that was listed.

        Raises Fault; NoRanges where the server gives whole objects only.
        """
        options: dict[str, Any] = {}
        if self.lists and listed.tag:
            options["if_match"] = f'"{listed.tag}"'
        if (start, stop) != (0, listed.size):
            options["range"] = (start, stop)
        # A store is silent for longer now and then: each time that it was, an object gets twice as long.
        silences = self._silences[listed.key]
        pause = min(self._timeout_s * 2**silences / _HURRY, self._timeout_s)
        try:
            content = b"".join(self._stream(self._store, listed, options, pause))
        except Silence:
            self._silences[listed.key] += 1
            raise
        if len(content) != stop - start:
            raise Passing(f"{len(content)} bytes came, not {stop - start}")
        return memoryview(content)

    def whole(self, listed: Listed) -> Iterator[bytes]:
        """All bytes of an object as a stream, for servers without ranges.  Raises Fault.

        The whole may take as long as it likes, each piece of it no longer than an answer may.
        """
        yield from self._stream(self._patient, listed, {}, self._timeout_s)

    def _stream(self, store: Any, listed: Listed, options: dict[str, Any], pause: float) -> Iterator[bytes]:
        """The bytes of one answer, as they come.  Raises Fault; Silence where nothing comes for `pause` seconds."""
        pieces: queue.Queue[bytes | Fault | None] = queue.Queue(2)
        left = threading.Event()

        def put(item: bytes | Fault | None) -> None:
            while not left.is_set():
                with suppress(queue.Full):
                    return pieces.put(item, timeout=_LOOK_S)

        def read() -> None:
            try:
                result = self._obstore.get(store, listed.key, options=options)
                self._check(listed, _listed(result.meta))
                for piece in result.stream(min_chunk_size=_STREAMED):
                    put(bytes(piece))
                    if left.is_set():
                        return
                put(None)
            except Fault as fault:
                put(fault)
            except Exception as error:
                put(fault_of(error))

        threading.Thread(target=read, daemon=True).start()  # one that waits for a dead server is left to itself
        try:
            while (item := pieces.get(timeout=pause)) is not None:
                if isinstance(item, Fault):
                    raise item
                yield item
        except queue.Empty:
            raise Silence from None
        finally:
            left.set()

    def _check(self, listed: Listed, found: Listed) -> None:
        if found.size != listed.size or (listed.tag and found.tag and found.tag != listed.tag):
            raise Changed


def _listed(meta: Any) -> Listed:
    tag = (meta["e_tag"] or "").removeprefix("W/").strip('"')
    if not tag and meta["last_modified"] is not None and meta["last_modified"].timestamp() > 0:
        tag = meta["last_modified"].isoformat()
    return Listed(meta["path"], int(meta["size"]), tag)
