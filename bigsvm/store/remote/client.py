"""Access to one bucket or web server by obstore: list, head, get; every failure becomes a `Fault`."""

from __future__ import annotations

import base64
import functools
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from bigsvm.errors import UsageError
from bigsvm.files.paths import BUCKETS
from bigsvm.store.remote.faults import Believed, Changed, NoRanges, OtherRange, Passing, Unmeasured
from bigsvm.store.remote.names import with_secrets, without_secrets
from bigsvm.store.remote.race import Pace, racing
from bigsvm.store.remote.settings import Storage
from bigsvm.store.remote.versions import Held, Listed, listed_of

_CONNECT_S = 5
_PAGE = 1000
_STREAMED, _STREAM = 256 << 10, "1d"
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
_SETTINGS = {
    "s3": "check AWS_REGION, AWS_ENDPOINT_URL and AWS_PROFILE",
    "gs": "check GOOGLE_APPLICATION_CREDENTIALS",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or another credential",
    "http": "check the URL",
    "https": "check the URL",
}


class Client:
    """The objects in the bucket or on the server of `name`; `root` is the key that `name` refers to.

    Raises
    ------
    UsageError : obstore is not installed, or an option is unknown or invalid.
    """

    def __init__(self, name: str, storage: Storage) -> None:
        self.name = without_secrets(name)
        scheme, _, rest = self.name.partition("://")
        self.lists = scheme in BUCKETS
        host, _, path = rest.partition("/")
        self.root = path.strip("/") if self.lists else unquote(path).strip("/")
        self._base = f"{scheme}://{host}"
        self.place = ""
        """Where the bucket is, in addition to its name; used only in digests."""
        if not host:
            raise UsageError("names no bucket" if self.lists else "names no host", self.name)
        if self.root and any(part in ("", ".", "..") for part in self.root.split("/")):
            raise UsageError("its path has an empty part, . or ..", self.name, "name the key as the store lists it")
        self.md5_tags = scheme in ("s3", "gs")
        try:
            import obstore
        except ImportError:
            raise UsageError(
                f"{scheme}:// needs obstore, which is not installed", self.name, "pip install 'bigsvm[remote]'"
            ) from None
        self._obstore: Any = obstore
        self._pace = Pace(storage.timeout_s)
        self.stopping = self._pace.stopping
        try:
            self._store = self._open(scheme, host, storage)
        except UsageError:
            raise
        except Exception as error:  # obstore raises many classes, and its messages may repeat secret values
            unknown = type(error).__name__ in ("UnknownConfigurationKeyError", "ValueError", "TypeError")
            what = (
                "a storage option is unknown"
                if unknown and storage.options
                else "the store cannot be reached with these settings"
            )
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
        """The credentials of AWS_PROFILE, which obstore gets from boto3."""
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
        """The URI of an object, for messages."""
        return f"{self._base}/{key}"

    def pages(self, prefix: str, after: str) -> Iterator[list[Listed]]:
        """Pages of objects below a prefix whose keys are greater than `after`.  Raises Fault."""
        last = [after]
        for page in racing(lambda: self._listing(prefix, last[0]), self._pace):
            yield page
            last[:] = [page[-1].key] if page else last

    def head(self, key: str) -> Listed:
        """Size and version of an object.  Raises Fault."""
        try:
            found = next(racing(lambda: self._heads(key), self._pace))
            if self.lists or found.version or not found.size:
                return found
        except Believed as fault:
            if self.lists or not (fault.kind in ("denied", "length", "date") or fault.kind.startswith("refused")):
                raise
        # A URL that is signed for GET answers HEAD with 403, and some servers do not support HEAD.  Others give an ETag
        # or a time only with GET.
        for whole in (False, True):
            try:
                return next(racing(functools.partial(self._begins, key, whole), self._pace))
            except (NoRanges, OtherRange):
                continue
            except Believed as fault:
                if fault.kind == "refused 416" and not whole:  # an empty object has no range
                    continue
                if fault.kind == "refused 405":  # the answer of a folder
                    raise Believed("is not there (HTTP 405)", "absent") from None
                raise
        raise Unmeasured

    def get(self, listed: Listed, start: int, stop: int, held: Held | None = None) -> memoryview:
        """Bytes [start, stop) of an object, which must not have changed since it was listed.

        held : compares this answer with the others about the same object; None: only with the listing

        Raises Fault; NoRanges if the server gives only whole objects.
        """
        pieces: list[bytes] = []
        held = held or Held(listed)

        def rest() -> Iterator[bytes]:
            return self._answer(self._store, listed, start + sum(map(len, pieces)), stop, held)

        try:
            for piece in racing(rest, self._pace):
                pieces.append(piece)
        except Believed as fault:
            if self.lists or fault.kind != "refused 416":
                raise
            listed.check(self.head(listed.key))  # it may have been longer when it was listed
            what = f"the server refuses the bytes {start}-{stop - 1} of the {listed.size} that it announces (HTTP 416)"
            raise OtherRange(what) from None
        content = b"".join(pieces)
        if len(content) > stop - start:
            raise OtherRange(f"the server answers a request for {stop - start} bytes with {len(content)}")
        if len(content) != stop - start:
            raise Passing(f"{len(content)} bytes came instead of {stop - start}")
        return memoryview(content)

    def confirm(self, listed: Listed, held: Held) -> None:
        """List an object again if the answers with its bytes did not show that they were of the listed version.

        Raises Fault; Changed if the listing is now another one.
        """
        if self.lists or held.complete:
            return
        now = self.head(listed.key)
        listed.check(now)
        if not listed.is_comparable(now):
            raise Changed

    def whole(self, listed: Listed, held: Held) -> Iterator[bytes]:
        """All bytes of an object as a stream, for servers without ranges.  Raises Fault.

        The deadline of an answer applies to each piece, not to the whole object.
        """
        yield from racing(lambda: self._answer(self._patient, listed, 0, listed.size, held), self._pace, alone=True)

    # One request each, which begins when its first item is asked for; `racing` translates obstore's errors.

    def _listing(self, prefix: str, after: str) -> Iterator[list[Listed]]:
        for page in self._obstore.list(self._store, prefix or None, offset=after or None, chunk_size=_PAGE):
            yield [listed_of(meta) for meta in page]

    def _heads(self, key: str) -> Iterator[Listed]:
        yield listed_of(self._obstore.head(self._store, key))

    def _begins(self, key: str, whole: bool) -> Iterator[Listed]:
        options = {} if whole else {"range": (0, 1)}
        yield listed_of(self._obstore.get(self._store, key, options=options).meta)

    def _answer(self, store: Any, listed: Listed, start: int, stop: int, held: Held) -> Iterator[bytes]:
        options: dict[str, Any] = {}
        if self.lists and listed.tag:
            options["if_match"] = f'"{listed.tag}"'
        if (start, stop) != (0, listed.size):
            options["range"] = (start, stop)
        if start >= stop:  # everything came; only the end of the stream was not reported
            return
        result = self._obstore.get(store, listed.key, options=options)
        held.check(listed_of(result.meta))
        for piece in result.stream(min_chunk_size=_STREAMED):
            yield bytes(piece)
