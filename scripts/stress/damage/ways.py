"""Thirteen ways in which a file is damaged."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path, list[Path], random.Random], None]


def _rewrite(file: Path, change: Callable[[bytearray], bytearray | bytes]) -> None:
    file.chmod(0o644)
    file.write_bytes(change(bytearray(file.read_bytes())))


def flip(file: Path, others: list[Path], rng: random.Random) -> None:
    """One bit."""

    def change(content: bytearray) -> bytearray:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        return content

    _rewrite(file, change)


def zeros(file: Path, others: list[Path], rng: random.Random) -> None:
    """A run of bytes that never came to the disk."""

    def change(content: bytearray) -> bytearray:
        start = rng.randrange(len(content))
        stop = min(len(content), start + rng.randrange(1, 513))
        if not any(content[start:stop]):
            content[start] = 255
            return content
        content[start:stop] = bytes(stop - start)
        return content

    _rewrite(file, change)


def noise(file: Path, others: list[Path], rng: random.Random) -> None:
    """Other content of the same length."""
    _rewrite(file, lambda content: rng.randbytes(len(content)))


def cut(file: Path, others: list[Path], rng: random.Random) -> None:
    """The end is missing."""
    _rewrite(file, lambda content: content[: rng.randrange(len(content))])


def cut_one(file: Path, others: list[Path], rng: random.Random) -> None:
    """The last byte is missing."""
    _rewrite(file, lambda content: content[:-1])


def emptied(file: Path, others: list[Path], rng: random.Random) -> None:
    """Nothing is in it."""
    _rewrite(file, lambda content: b"")


def longer(file: Path, others: list[Path], rng: random.Random) -> None:
    """Something follows."""
    _rewrite(file, lambda content: content + rng.randbytes(rng.randrange(1, 64)))


def page_of_an_error(file: Path, others: list[Path], rng: random.Random) -> None:
    """What a proxy said in its place."""
    _rewrite(file, lambda content: b"<html><body>503 Service Unavailable</body></html>")


def removed(file: Path, others: list[Path], rng: random.Random) -> None:
    """It is gone."""
    file.unlink()


def folder_in_its_place(file: Path, others: list[Path], rng: random.Random) -> None:
    """A folder has its name."""
    file.unlink()
    file.mkdir()


def dangling(file: Path, others: list[Path], rng: random.Random) -> None:
    """A link to nowhere has its name."""
    file.unlink()
    file.symlink_to("nowhere")


def swapped(file: Path, others: list[Path], rng: random.Random) -> None:
    """It and another one have changed names."""
    other = rng.choice(others)
    one, two = file.read_bytes(), other.read_bytes()
    file.write_bytes(two)
    other.write_bytes(one)


def copied(file: Path, others: list[Path], rng: random.Random) -> None:
    """Another one's content."""
    file.write_bytes(rng.choice(others).read_bytes())


DAMAGES: list[Damage] = [
    flip, zeros, noise, cut, cut_one, emptied, longer, page_of_an_error, removed, folder_in_its_place, dangling,
    swapped, copied,
]  # fmt: skip
