"""`KeyIndex`: small ids for byte keys, which stay with them; and `IndexRow`, the row that holds one.

Ids are the numbers of *slots*, from 0. A slot holds a key, or is *free*, or is *inactive*: its key is gone, and its id
is kept back until `KeyIndex.clear_inactive`, while what refers to it is cleaned up. Free slots form a chain, the one
freed last first, which ends at the number after the last slot; so do inactive slots, which ends at None::

    slots      0 key "a"   1 free, next 3   2 inactive, next None   3 free, next 4
    available  1           the id that the next insertion gets; then 3, then 4, a new slot
    inactive   2           the first of the chain that `clear_inactive` frees

Stored as a MessagePack array ``[slots, available, inactive]``; a slot is ``[0, key]``, ``[1, next]`` (free) or
``[2, next or None]`` (inactive). Bytes after the array are tolerated when it is read. A slot is never overwritten
unless it is of the kind that it must be, so a damaged index makes operations fail with `CorruptIndexError`, and neither
gives an id out twice nor keeps anything from ending.

An index is a working copy: decoded, changed, encoded again, by one thread. An operation that fails changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

import msgspec

from pystate import FamilyReader, FamilyWriter
from pystate.errors import CorruptIndexError, IdOutOfRangeError, IndexFullError, NoSuchIdError

__all__ = ["IndexRow", "KeyIndex"]

IDS_MAX = (1 << 32) - 1
"""How many ids there are: 0 to 4,294,967,294, since the one that comes next must fit as well."""

_Id = Annotated[int, msgspec.Meta(ge=0, le=IDS_MAX)]


class _Used(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False, tag=0):
    key: bytes


class _Free(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False, tag=1):
    next: _Id


class _Inactive(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False, tag=2):
    next: _Id | None


class _Stored(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    slots: list[_Used | _Free | _Inactive]
    available: _Id
    inactive: _Id | None


_decode = msgspec.msgpack.Decoder(_Stored).decode
_encode = msgspec.msgpack.Encoder().encode
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)$")


class KeyIndex:
    """Ids for byte keys. See the module for what it holds.

    Neither that keys differ from one another, nor that they are not empty, is checked here: that is for the user.

    Arguments:
        family, key: where it is stored, for the errors.
    """

    __slots__ = ("_available", "_inactive", "_slots", "family", "key")
    __hash__ = None  # type: ignore[assignment]  # it changes

    def __init__(self, *, family: str = "", key: bytes = b"") -> None:
        self.family = family
        self.key = key
        self._slots: list[_Used | _Free | _Inactive] = []
        self._available = 0
        self._inactive: int | None = None

    @classmethod
    def of(cls, keys: Mapping[int, bytes], *, inactive: Iterable[int] = ()) -> KeyIndex:
        """An index in which each id has its key, and those `inactive` are kept back, the first of them first.

        The other ids below the greatest are free, the smallest first. Cost: the greatest id.

        Raises:
            TypeError: an id is no int, a key is not bytes. ValueError: an id is out of range, or occurs twice.
        """
        inactive = list(inactive)
        taken = {*keys, *inactive}
        for number in taken:
            if not 0 <= _checked_id(number) < IDS_MAX:
                raise ValueError(f"id {number} is not in 0 to {IDS_MAX - 1}")
        if len(taken) < len(keys) + len(inactive):
            raise ValueError(f"an inactive id occurs twice, or has a key: {inactive}")
        index = cls()
        slots: dict[int, _Used | _Free | _Inactive] = {number: _Used(_checked(key)) for number, key in keys.items()}
        for number in reversed(inactive):
            slots[number] = _Inactive(index._inactive)
            index._inactive = number
        index._available = size = max(taken, default=-1) + 1
        for number in reversed(range(size)):
            if number not in taken:
                slots[number] = _Free(index._available)
                index._available = number
        index._slots = [slots[number] for number in range(size)]
        return index

    # Bytes

    @classmethod
    def decode(cls, data: bytes, *, family: str = "", key: bytes = b"") -> KeyIndex:
        """The index that `data` begins with. Cost: the number of its slots.

        Arguments:
            family, key: where it is stored, for the errors.

        Raises:
            CorruptIndexError: there is none.
        """
        try:
            stored = _first_value(data)
        except msgspec.MsgspecError as error:
            raise CorruptIndexError(family=family, key=key, reason=str(error)) from None
        index = cls(family=family, key=key)
        index._slots, index._available, index._inactive = stored.slots, stored.available, stored.inactive
        return index

    def encode(self) -> bytes:
        """The bytes that `decode` makes this index of. Cost: the number of its slots."""
        return _encode([self._slots, self._available, self._inactive])

    def copy(self) -> KeyIndex:
        """Another index with the same content."""
        index = KeyIndex(family=self.family, key=self.key)
        index._slots, index._available, index._inactive = self._slots[:], self._available, self._inactive
        return index

    # Reading

    def count(self) -> int:
        """How many ids have a key. Cost: the number of slots."""
        return list(map(type, self._slots)).count(_Used)

    def get(self, id: int) -> bytes | None:  # noqa: A002
        """The key of an id; None when it is free, inactive, or was never given out.

        Raises:
            TypeError: it is no int.
        """
        slot = self._slots[id] if 0 <= _checked_id(id) < len(self._slots) else None
        return slot.key if type(slot) is _Used else None

    def entries(self) -> Iterator[tuple[int, bytes]]:
        """Every id that has a key, with it, in ascending order."""
        return ((number, slot.key) for number, slot in enumerate(self._slots) if type(slot) is _Used)

    def inactive(self) -> list[int]:
        """The inactive ids, in the order in which `clear_inactive` frees them.

        Raises:
            CorruptIndexError: their chain is broken.
        """
        chain: list[int] = []
        at = self._inactive
        while at is not None:
            slot = self._slots[at] if at < len(self._slots) else None
            if type(slot) is not _Inactive or len(chain) == len(self._slots):
                raise self._corrupt(f"the chain of inactive ids is broken at {at}")
            chain.append(at)
            at = slot.next
        return chain

    def problems(self) -> list[str]:
        """What is wrong with the chains, in words; empty when each of them has every slot of its kind once."""
        found = []
        try:
            if len(self.inactive()) != list(map(type, self._slots)).count(_Inactive):
                found.append("an inactive id is missing in the chain of inactive ids")
        except CorruptIndexError as error:
            found.append(error.reason)
        at, seen = self._available, 0
        while at != len(self._slots):
            slot = self._slots[at] if at < len(self._slots) else None
            if type(slot) is not _Free or seen == len(self._slots):
                return [*found, f"the chain of free ids is broken at {at}"]
            at, seen = slot.next, seen + 1
        if seen != list(map(type, self._slots)).count(_Free):
            found.append("a free id is missing in the chain of free ids")
        return found

    # Changing

    def insert(self, key: bytes) -> int:
        """Give an id to `key`: the one freed last, or the next new one.

        Raises:
            IndexFullError: there is none left. CorruptIndexError: the one that is noted as free is not.
            TypeError: the key is not bytes.
        """
        slots, number = self._slots, self._available
        new = _Used(_checked(key))
        if number == len(slots):
            if number >= IDS_MAX:
                raise IndexFullError(family=self.family, key=self.key)
            slots.append(new)
            self._available = number + 1
            return number
        slot = slots[number] if number < len(slots) else None
        if type(slot) is not _Free:
            raise self._corrupt(f"id {number}, the next to be given out, is not free")
        slots[number] = new
        self._available = slot.next
        return number

    def remove(self, id: int) -> bytes:  # noqa: A002
        """Free an id, so that the next insertion gets it; return the key that it had.

        Raises:
            NoSuchIdError: it is free or inactive. IdOutOfRangeError: it was never given out. TypeError: it is no int.
        """
        key = self._key_of(id)
        self._slots[id] = _Free(self._available)
        self._available = id
        return key

    def deactivate(self, id: int) -> bytes:  # noqa: A002
        """Take the key of an id away, and keep the id back until `clear_inactive`; return the key.

        Raises:
            NoSuchIdError, IdOutOfRangeError, TypeError: as `remove`.
        """
        key = self._key_of(id)
        self._slots[id] = _Inactive(self._inactive)
        self._inactive = id
        return key

    def clear_inactive(self) -> int:
        """Free all inactive ids, the one deactivated last first; return how many there were.

        Raises:
            CorruptIndexError: their chain is broken.
        """
        chain = self.inactive()
        for number in chain:
            self._slots[number] = _Free(self._available)
            self._available = number
        self._inactive = None
        return len(chain)

    def update(self, id: int, key: bytes) -> bytes:  # noqa: A002
        """Give an id another key; return the one that it had.

        Raises:
            NoSuchIdError, IdOutOfRangeError, TypeError: as `remove`. TypeError: the key is not bytes.
        """
        new = _Used(_checked(key))
        old = self._key_of(id)
        self._slots[id] = new
        return old

    def _key_of(self, id: int) -> bytes:  # noqa: A002
        key = self.get(id)
        if key is None:
            if 0 <= id < len(self._slots):
                raise NoSuchIdError(family=self.family, key=self.key, id=id)
            raise IdOutOfRangeError(family=self.family, key=self.key, id=id, slots=len(self._slots))
        return key

    def _corrupt(self, reason: str) -> CorruptIndexError:
        return CorruptIndexError(family=self.family, key=self.key, reason=reason)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyIndex):
            return NotImplemented
        mine, theirs = (self._available, self._inactive), (other._available, other._inactive)
        return mine == theirs and self._slots == other._slots

    def __repr__(self) -> str:
        return f"<KeyIndex: {self.count()} of {len(self._slots)} ids in use, next {self._available}>"


def _checked(key: bytes) -> bytes:
    if type(key) is not bytes:
        raise TypeError(f"a key is bytes, not {type(key).__name__}")
    return key


def _checked_id(id: int) -> int:  # noqa: A002
    if type(id) is not int:
        raise TypeError(f"an id is an int, not {type(id).__name__}")
    return id


def _first_value(data: bytes) -> _Stored:
    """The value that `data` begins with, whatever follows it."""
    try:
        return _decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        end = _TRAILING.search(str(error))
        if end is None:
            raise
        return _decode(data[: int(end[1])])


class IndexRow:
    """The row of a family that holds a `KeyIndex`; when there is none, the index is empty.

    What was read last is kept beside its bytes, so that reading the same bytes again costs nothing. Threads and stores
    may share it.

    Arguments:
        key: of the row.
    """

    __slots__ = ("_last", "key")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self._last: tuple[bytes, KeyIndex] | None = None

    def read(self, rows: FamilyReader) -> KeyIndex:
        """The index, which others may be reading as well: do not change it.

        Raises:
            CorruptIndexError: the row cannot be read.
        """
        data = rows.get(self.key)
        if data is None:
            return KeyIndex(family=rows.name, key=self.key)
        last = self._last  # one assignment, one reading: another thread may put another pair here at any moment
        if last is not None and last[0] is data and last[1].family == rows.name:
            return last[1]
        index = KeyIndex.decode(data, family=rows.name, key=self.key)
        self._last = data, index
        return index

    def open(self, rows: FamilyReader) -> KeyIndex:
        """The index, to be changed and written. Cost: the number of its slots.

        Raises:
            CorruptIndexError: the row cannot be read.
        """
        return self.read(rows).copy()

    def write(self, rows: FamilyWriter, index: KeyIndex) -> None:
        """Store an index, which must not be changed afterwards. Cost: the number of its slots."""
        data = index.encode()
        rows.put(self.key, data)
        self._last = data, index
