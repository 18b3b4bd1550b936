"""Names of remote objects, without the secrets in them.

A URL may contain a secret: `https://user:password@host/rows.csv`, or a signature after the `?`.  The program uses the
name without it.  The secret stays in the memory of this process, and appears in no message, record or file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from bigsvm.errors import BigSVMError, UsageError
from bigsvm.files.paths import BUCKETS, SCHEMES, rename

_REMOTE = re.compile(rf"({'|'.join(SCHEMES)})://", re.IGNORECASE)
ALL = "*"
"""Instead of a matrix: everything in the store."""
_whole: dict[str, str] = {}
"""Name -> URL with its secrets, for the names that have any."""
_SIGNED = re.compile(
    r"(x-(amz|goog|oss|ms)-.*|awsaccesskeyid|googleaccessid|ossaccesskeyid|signature|expires|key-pair-id|policy|sig|se|sv|sp"
    r"|sr|st|spr|sip|skoid|sktid|skt|ske|sks|skv|token|access_token|auth)",
    re.IGNORECASE,
)
"""Query parameters that authorise (signatures of S3, Google, Azure and other servers), and do not select content."""


class _Named(str):
    """A name that remembers its own URL, because URLs with different queries can have the same name."""

    whole: str

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # pickled without the URL, so that secrets do not leave this process


def is_remote(name: str) -> bool:
    """Whether a name refers to something on another machine."""
    return _REMOTE.match(name) is not None


def without_secrets(name: str) -> str:
    """The name to use: a URL without user, password, query and fragment, which this process remembers; or a path.

    Raises UsageError for a bucket's URI with any of these, because its credentials come from the environment.
    """
    if not is_remote(name) or isinstance(name, _Named):
        return name
    scheme, _, rest = name.partition("://")
    netloc, slash, path = rest.partition("/")
    bare_path, query, _ = path.partition("?")
    if scheme.lower() in BUCKETS:
        if "@" in netloc or (query and "=" in path):
            bare = f"{scheme.lower()}://{netloc.rpartition('@')[2]}{slash}{bare_path}"
            hint = "credentials come from the environment (AWS_*, GOOGLE_*, AZURE_*) or --storage-option"
            raise UsageError("a bucket's URI has no user and no query", bare, hint)
        return f"{scheme.lower()}://{rest}"
    parts = urlsplit(name)
    host = parts.netloc.rpartition("@")[2]
    bare = _Named(f"{scheme.lower()}://{host}{parts.path}")
    bare.whole = name
    if "@" in parts.netloc or parts.query:
        _whole[str(bare)] = name
    return bare


def with_secrets(name: str) -> str:
    """The URL to request: the one that the name was made from, or the last one with such a name in this process."""
    return name.whole if isinstance(name, _Named) else _whole.get(name, name)


def chosen_by_query(name: str) -> str:
    """The parts of a URL's query that may select content (signatures do not); as secret as the whole query."""
    pairs = parse_qsl(urlsplit(with_secrets(name)).query, True)
    return urlencode([pair for pair in pairs if not _SIGNED.fullmatch(pair[0])])


@contextmanager
def here(source: Any, whole: bool = False) -> Iterator[Any]:
    """The local path of a source's rows for the duration of the block: remote rows are copied.

    Local paths and objects other than strings are returned unchanged.  Errors in the block name what the user named.

    whole : copy all arrays of a store, not only those that a fit reads
    """
    if not isinstance(source, str) or not is_remote(source):
        yield source
        return
    from bigsvm.store.remote.bring import bring  # imported when needed, because it imports the client

    brought = bring(source, ALL if whole else "X")
    with brought.kept:
        try:
            yield brought.path
        except BigSVMError as error:
            rename(error)
            raise


def base_name(name: str) -> str:
    """The last part of a name: `rows.zarr` for `s3://bucket/rows.zarr/`."""
    return name.split("://", 1)[-1].rstrip("/").rpartition("/")[2] or "objects"
