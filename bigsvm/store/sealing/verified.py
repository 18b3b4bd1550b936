"""Zarr stores that keep the manifest's promise: one records digests, the other checks every read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Any

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import LocalStore, WrapperStore

from bigsvm.files.paths import plain_path
from bigsvm.store.sealing.former import verified
from bigsvm.store.sealing.manifest import Manifest, digest, read_failed


class DigestingStore(WrapperStore[LocalStore]):
    """Records the digest of each value set, for the manifest of a store being written."""

    def __init__(self, store: LocalStore) -> None:
        super().__init__(store)
        self.digests: dict[str, str] = {}

    async def set(self, key: str, value: Buffer) -> None:
        await self._store.set(key, value)
        self.digests[key] = digest(key, value.as_numpy_array())

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        if not await self._store.exists(key):
            await self.set(key, value)

    async def _set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        for key, value in values:
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        await self._store.delete(key)
        self.digests.pop(key, None)


class VerifyingStore(WrapperStore[LocalStore]):
    """Read-only; whole values are read and held against the manifest, then sliced.

    A chunk that is listed and missing is an error, never a fill value.  Documents that are neither listed
    nor there stay None, so that zarr may probe for versions.
    """

    def __init__(self, store: LocalStore, manifest: Manifest) -> None:
        super().__init__(store)
        self._manifest = manifest
        # The parts of one shard are asked for one after another; without this each would read it whole.
        self._partial: tuple[str, Buffer] | None = None

    def _with_store(self, store: LocalStore) -> VerifyingStore:
        return type(self)(store, self._manifest)

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        former = self._partial
        if byte_range is not None and former is not None and former[0] == key:
            return _slice(former[1], byte_range)
        plain_path(self._store.root, key)
        try:
            value = await self._store.get(key, prototype or default_buffer_prototype())
        except OSError as error:
            raise read_failed(key, error) from error
        found = None if value is None else value.as_numpy_array()
        kept = verified(self._store.root, self._manifest, key, found)
        if kept is not None and kept is not found:
            value = (prototype or default_buffer_prototype()).buffer.from_bytes(kept)
        if value is None or byte_range is None:
            return value
        self._partial = (key, value)
        return _slice(value, byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def _get_many(
        self, requests: Iterable[tuple[str, BufferPrototype, ByteRequest | None]]
    ) -> AsyncGenerator[tuple[str, Buffer | None], None]:
        for key, prototype, byte_range in requests:
            yield key, await self.get(key, prototype, byte_range)


def _slice(value: Buffer, byte_range: ByteRequest) -> Any:
    if isinstance(byte_range, RangeByteRequest):
        return value[byte_range.start : byte_range.end]
    if isinstance(byte_range, OffsetByteRequest):
        return value[byte_range.offset :]
    if isinstance(byte_range, SuffixByteRequest):
        return value[max(0, len(value) - byte_range.suffix) :]
    raise TypeError(f"unknown byte range {byte_range!r}")
