"""What every family handle has in common: the mapping interface over point reads and scans.

`FamilyReader` turns `get`, `scan` and `__len__` of a subclass into a whole ``Mapping`` in key order, `FamilyWriter`
turns `put`, `delete` and friends into a whole ``MutableMapping``. The handles of a store, a view and a transaction are
three subclasses of these; they differ in where they read and what a write means, and in nothing else.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pystate.engine.family_state import Bounds, Pair, Writes
from pystate.engine.limits import Buffer, as_key, as_value

__all__ = ["FamilyReader", "FamilyWriter", "check_limit", "new_items", "prefix_end", "scan_bounds"]

T = TypeVar("T")
_MISSING: Any = object()


def prefix_end(prefix: bytes) -> bytes | None:
    """The smallest key above every key with this prefix; None when there is none (empty, or all bytes 0xff)."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes((trimmed[-1] + 1,)) if trimmed else None


def scan_bounds(start: Buffer | None, stop: Buffer | None, prefix: Buffer | None) -> Bounds:
    """The range of keys that a scan's arguments mean; a prefix and bounds together mean what is in both.

    Raises:
        TypeError: one is neither None nor bytes-like.
        ValueError: one is longer than a key may be.
    """
    low = as_key(start) if start is not None else None
    high = as_key(stop) if stop is not None else None
    if prefix is not None:
        prefix = as_key(prefix)
        end = prefix_end(prefix)
        low = prefix if low is None else max(low, prefix)
        if end is not None:
            high = end if high is None else min(high, end)
    return Bounds(low, high)


def check_limit(limit: object) -> int | None:
    """Refuse a limit that is none.

    Raises:
        TypeError: not an int. ValueError: negative.
    """
    if limit is None:
        return None
    if type(limit) is not int:
        raise TypeError(f"limit is an int or None, not {type(limit).__name__}")
    if limit < 0:
        raise ValueError(f"limit is {limit}; it cannot be negative")
    return limit


def new_items(other: Any, keywords: dict[str, Any]) -> Writes:
    """What ``update(other, **keywords)`` puts.

    Raises:
        TypeError: there are keywords, or a key or value is not bytes-like. ValueError: one is longer than allowed.
    """
    if keywords:
        raise TypeError("keys are bytes, so update takes no keyword arguments; pass a mapping or pairs")
    pairs = other.items() if isinstance(other, Mapping) else other
    return {as_key(key): as_value(value) for key, value in pairs}


class _Values(ValuesView[bytes]):
    _mapping: FamilyReader

    def __iter__(self) -> Iterator[bytes]:
        return (value for _, value in self._mapping.scan())

    def __reversed__(self) -> Iterator[bytes]:
        return (value for _, value in self._mapping.scan(reverse=True))

    def __contains__(self, value: object) -> bool:
        return any(value == other for other in self)


class _Items(ItemsView[bytes, bytes]):
    _mapping: FamilyReader

    def __iter__(self) -> Iterator[Pair]:
        return self._mapping.scan()

    def __reversed__(self) -> Iterator[Pair]:
        return self._mapping.scan(reverse=True)


class _Keys(KeysView[bytes]):
    _mapping: FamilyReader

    def __reversed__(self) -> Iterator[bytes]:
        return (key for key, _ in self._mapping.scan(reverse=True))


class FamilyReader(Mapping[bytes, bytes]):
    """A family as a mapping in key order, for reading."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the family."""

    @abstractmethod
    def scan(
        self,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[Pair]:
        """Yield ``(key, value)`` in key order, as of the moment of the call, whatever is written meanwhile.

        Arguments:
            start: the smallest key, inclusive, in both directions; None: from the first.
            stop: where keys end, exclusive, in both directions; None: to the last.
            prefix: only keys that begin with it. Together with `start` or `stop`: what satisfies all.
            reverse: from the largest key down.
            limit: at most so many.

        Raises:
            TypeError, ValueError: an argument is not what it must be.
            ConflictError: more was overwritten since the scan began than is kept (``too_old``); scan again.
        """

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _read(self, key: bytes) -> bytes | None: ...

    if TYPE_CHECKING:

        @overload
        def get(self, key: bytes) -> bytes | None: ...
        @overload
        def get(self, key: bytes, default: bytes) -> bytes: ...
        @overload
        def get(self, key: bytes, default: T) -> bytes | T: ...
        def get(self, key: bytes, default: Any = None) -> Any:
            """The value of `key`, or `default` when the family has no such key."""

    else:

        def get(self, key, default=None):
            """The value of `key`, or `default` when the family has no such key.

            Raises:
                TypeError: `key` is not bytes-like. ValueError: it is longer than a key may be.
            """
            value = self._read(key if type(key) is bytes else as_key(key))
            return default if value is None else value

    def __getitem__(self, key: Buffer) -> bytes:
        value = self._read(as_key(key))
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return self._read(as_key(key)) is not None

    def __iter__(self) -> Iterator[bytes]:
        return (key for key, _ in self.scan())

    def __reversed__(self) -> Iterator[bytes]:
        return (key for key, _ in self.scan(reverse=True))

    def keys(self) -> KeysView[bytes]:
        """The keys, in order; each iteration sees one state."""
        return _Keys(self)

    def values(self) -> ValuesView[bytes]:
        """The values, in key order; each iteration sees one state."""
        return _Values(self)

    def items(self) -> ItemsView[bytes, bytes]:
        """Keys and values, in key order; each iteration sees one state."""
        return _Items(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class FamilyWriter(FamilyReader, MutableMapping[bytes, bytes]):
    """A family as a mutable mapping in key order."""

    __slots__ = ()

    @abstractmethod
    def put(self, key: Buffer, value: Buffer) -> None:
        """Set `key` to `value`, whether it exists or not.

        Raises:
            TypeError: one is not bytes-like. ValueError: one is longer than allowed.
        """

    @abstractmethod
    def delete(self, key: Buffer) -> None:
        """Remove `key`; no error when there is none."""

    @abstractmethod
    def delete_range(self, start: Buffer | None, stop: Buffer | None) -> None:
        """Remove every key from `start` (inclusive) to `stop` (exclusive); None is unbounded.

        Cost: one operation per key removed.
        """

    @abstractmethod
    def _atomically(self, action: Callable[[FamilyWriter], T]) -> T:
        """Run `action` on this family as one commit; it may run again, so it must do nothing but read and write."""

    def __setitem__(self, key: Buffer, value: Buffer) -> None:
        self.put(key, value)

    def __delitem__(self, key: Buffer) -> None:
        self.pop(key)

    if TYPE_CHECKING:

        @overload
        def pop(self, key: Buffer) -> bytes: ...
        @overload
        def pop(self, key: Buffer, default: T) -> bytes | T: ...
        def pop(self, key: Any, default: Any = None) -> Any:
            """Remove `key` and return its value, or `default` if it is absent.

            Raises:
                KeyError: it is absent and there is no default.
            """

    else:

        def pop(self, key, default=_MISSING):
            """Remove `key` and return its value, or `default` if it is absent.

            Raises:
                KeyError: it is absent and there is no default.
            """
            key = as_key(key)

            def action(family):
                value = family._read(key)
                if value is not None:
                    family.delete(key)
                elif default is _MISSING:
                    raise KeyError(key)
                return default if value is None else value

            return self._atomically(action)

    def popitem(self) -> Pair:
        """Remove the first key; return it with its value.

        Raises:
            KeyError: the family is empty.
        """

        def action(family: FamilyWriter) -> Pair:
            for key, value in family.scan(limit=1):
                family.delete(key)
                return key, value
            raise KeyError(f"popitem(): family {family.name!r} is empty")

        return self._atomically(action)

    def setdefault(self, key: Buffer, default: Buffer = b"") -> bytes:
        """Return the value of `key`; if it is absent, set it to `default` first."""
        key, default = as_key(key), as_value(default)

        def action(family: FamilyWriter) -> bytes:
            value = family._read(key)
            if value is None:
                family.put(key, default)
                return default
            return value

        return self._atomically(action)

    def update(self, other: Any = (), /, **keywords: Any) -> None:
        """Put every item of a mapping, or of an iterable of pairs, as one commit."""
        for key, value in new_items(other, keywords).items():
            self.put(key, value)  # type: ignore[arg-type]  # no deletion is among them

    def clear(self) -> None:
        """Remove every key, as one commit."""
        self.delete_range(None, None)
