"""Names of objects elsewhere, and what in them nobody else may see.

A URL may carry a secret: `https://user:password@host/rows.csv`, or a signature after the `?`.  The program goes by the
name without it; the secret stays in the memory of this process, and is in no message, record or file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from bigsvm.errors import BigSVMError, UsageError
from bigsvm.files.paths import BUCKETS, SCHEMES

_REMOTE = re.compile(rf"({'|'.join(SCHEMES)})://", re.IGNORECASE)
ALL = "*"
"""In the place of a matrix: everything in the store."""
_copies: dict[str, str] = {}
_whole: dict[str, str] = {}
"""Name -> the URL with its secrets, of those that had any."""
_SIGNED = re.compile(
    r"(x-(amz|goog|oss|ms)-.*|awsaccesskeyid|googleaccessid|ossaccesskeyid|signature|expires|key-pair-id|policy|sig|se|sv|sp"
    r"|sr|st|spr|sip|skoid|sktid|skt|ske|sks|skv|token|access_token|auth)",
    re.IGNORECASE,
)
"""Parameters of a query that say who may read, and not what: what S3, Google, Azure and other servers sign with."""


class _Named(str):
    """A name that knows the URL it stands for, which others with that name may not share: their queries differ."""

    whole: str

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # secrets leave this process in nothing that is pickled


def is_remote(name: str) -> bool:
    """Whether a name is of something that is not on this machine."""
    return _REMOTE.match(name) is not None


def without_secrets(name: str) -> str:
    """The name to go by: a URL without user, password, query and fragment, which this process keeps; a path as it is.

    Raises UsageError for a bucket's URI with any of them: credentials come from the environment there.
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
    """The URL to ask for: the one that a name was made of, or the last that this process was given for such a name."""
    return name.whole if isinstance(name, _Named) else _whole.get(name, name)


def chosen_by_query(name: str) -> str:
    """Those parts of a URL's query that may choose what is given, as signatures do not; a secret like all of it."""
    pairs = parse_qsl(urlsplit(with_secrets(name)).query, True)
    return urlencode([pair for pair in pairs if not _SIGNED.fullmatch(pair[0])])


def came_from(path: str, name: str) -> None:
    """Remember that what lies at `path` here is a copy of `name`."""
    _copies[path] = name.rstrip("/")


def rename(error: BigSVMError) -> BigSVMError:
    """The same error, with the names that a user knows in the place of the paths of their copies."""
    for path, name in _copies.items():
        error.what, error.where = error.what.replace(path, name), error.where.replace(path, name)
        error.hint = error.hint.replace(path, name)
    error.args = (error.what, error.where, error.hint)
    return error


@contextmanager
def here(source: Any, whole: bool = False) -> Iterator[Any]:
    """The path of a source's rows on this machine, while the block runs: a copy of what lies elsewhere.

    A path is itself, and so is what is no string.  Errors of the block name what the user named.

    whole : of a store all arrays, not only those that a fit reads
    """
    if not isinstance(source, str) or not is_remote(source):
        yield source
        return
    from bigsvm.store.remote.bring import bring  # the client is loaded by those who need it

    brought = bring(source, ALL if whole else "X")
    with brought.kept:
        try:
            yield brought.path
        except BigSVMError as error:
            rename(error)
            raise


def base_name(name: str) -> str:
    """The last part of a name, `rows.zarr` of `s3://bucket/rows.zarr/`."""
    return name.split("://", 1)[-1].rstrip("/").rpartition("/")[2] or "objects"
