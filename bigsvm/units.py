"""Values as people type them: sizes '512MiB', '4GB', durations '90s', '2h', names 'a,b'."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable

from bigsvm.errors import UsageError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

_SIZE_UNITS = {
    "": 1, "b": 1,
    "k": KIB, "kib": KIB, "kb": 10**3,
    "m": MIB, "mib": MIB, "mb": 10**6,
    "g": GIB, "gib": GIB, "gb": 10**9,
    "t": 1 << 40, "tib": 1 << 40, "tb": 10**12,
}  # fmt: skip
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zA-Z%]*)\s*")


def parse_bytes(text: str | float, total: int | None = None) -> int:
    """Bytes of a size such as `512MiB`, `4GB`, `1024` or, where `total` is known, `25%` of it.

    Raises
    ------
    UsageError : not a size, not positive, or a percentage where none makes sense.
    """
    if isinstance(text, int | float):
        return int(text)
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UsageError(f"not a size: {text!r}", hint="write 512MiB, 4GB or 25%")
    number, unit = float(match[1]), match[2].lower()
    if unit == "%":
        if total is None or number > 100:
            raise UsageError(f"not a size: {text!r}", hint="a percentage of the memory limit is at most 100%")
        return int(total * number / 100)
    if unit not in _SIZE_UNITS:
        raise UsageError(f"unknown unit in size {text!r}", hint="KiB, MiB, GiB, TiB, kB, MB, GB, TB or %")
    value = int(number * _SIZE_UNITS[unit])
    if value <= 0:
        raise UsageError(f"a size must be positive, not {text!r}")
    return value


def parse_seconds(text: str | float) -> float:
    """Seconds of a duration such as `90s`, `15m`, `2h` or `3`.  Raises UsageError when it is none."""
    if isinstance(text, int | float):
        return float(text)
    match = _NUMBER.fullmatch(text)
    if match is None or match[2].lower() not in _SECONDS:
        raise UsageError(f"not a duration: {text!r}", hint="write 90s, 15m or 2h")
    return float(match[1]) * _SECONDS[match[2].lower()]


def show_bytes(nbytes: float) -> str:
    """A size for people: 1.5 GiB, 64 MiB, 12 B."""
    for unit, name in ((1 << 40, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.3g} {name}" if nbytes / unit < 1000 else f"{nbytes / unit:.0f} {name}"
    return f"{nbytes:.0f} B"


def show_seconds(seconds: float) -> str:
    """A duration for people: 0.42 s, 12.3 s, 4:05, 2:03:09."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def as_names(given: str | Iterable[str]) -> tuple[str, ...]:
    """Names as a tuple; of text as the command line has it, `A,B,...`, a name with a comma between quotation marks.

    Raises UsageError for text with an empty name, or with one twice.
    """
    if not isinstance(given, str):
        return tuple(map(str, given))
    try:
        names = tuple(next(csv.reader([given], skipinitialspace=True), ()))
    except csv.Error:  # a line end
        names = ()
    if not names or not all(names) or len(set(names)) != len(names):
        raise UsageError(f"{given!r} is not a list of different names")
    return names


def shortened(text: str, most: int = 200) -> str:
    """What a user typed, in a line that people read: of a long text the beginning."""
    return text if len(text) <= most else f"{text[:most]} ..."


def columns_there(name: str, columns: Iterable[str]) -> str:
    """The hint about a column that does not exist: one that is called nearly the same, and the first ones there are."""
    import difflib  # here, because only errors need it

    there = list(columns)
    meant = "".join(f"did you mean {close!r}? " for close in difflib.get_close_matches(name, there, 1))
    more = f" and {len(there) - 20:,} more" if len(there) > 20 else ""
    return f"{meant}columns there: {', '.join(there[:20])}{more}"


def plural(n: int, one: str, many: str = "") -> str:
    """The noun for `n` things: `one` if n is 1, else `many`, which is `one` with an s if it is not given."""
    return one if n == 1 else many or f"{one}s"


def counted(n: int, one: str, many: str = "", commas: bool = False) -> str:
    """A number of things: 1 row, 1500 rows; with commas 1,500 rows.  Nouns as in `plural`."""
    return f"{f'{n:,}' if commas else n} {plural(n, one, many)}"
