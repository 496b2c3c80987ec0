"""`RetentionIndex`: finds what a history has too much of, without reading the rest of it.

Finished records are kept for a while, by age and by number: "the newest of each group stays, others go when they are
older than this, or when the group has more than so many". A scan would read everything that stays, each time. This
index costs what goes. Of the records that are *members*, it knows for each *group* the order, the newest, and how many
there are; *expendable* members are those that may go once they are not the newest. Its rows, under three tags::

    history      group, order, key of the record   01 if expendable, else 00;   every member, oldest first
                                                   then the key of the record
    superseded   order, key of the record          key of the record            expendable, and not the newest
    counts 00    group                             uint32, then the place of    how many members it has, and which
                                                   one in `history`             is the newest
    counts 01    2**32 - 1 - number, group         empty                        groups of two or more, largest first

Two members of one group never have the same place: the record's key follows its order. The table writes these rows in
the commit of the record; storing a member costs a few reads and writes more, whatever the size of its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from pystate import FamilyReader, FamilyWriter
from pystate.tables.indexes import check_tag
from pystate.tables.keys import Key, check_length
from pystate.tables.parts import blob, uint32

__all__ = ["RetentionIndex"]

R = TypeVar("R")

_MOST = (1 << 32) - 1
_EXPENDABLE, _NEEDED = b"\x01", b"\x00"


class _Member(NamedTuple):
    """What the index holds of a record: its group, its place in it, and the value of its history row."""

    group: bytes
    place: bytes
    value: bytes


class RetentionIndex(Generic[R]):
    """An index for pruning by age and number. See the module for what it keeps.

    Arguments:
        name: unique in the table.
        history_tag, superseded_tag, counts_tag: three tags of its own (see `Index`).
        group: the fields that say which records belong together.
        order: the fields that order a group, oldest first; equal ones by the record's key.
        member: which records take part. A pure function of the record, as `expendable` is.
        expendable: which members may be removed once they are not the newest of their group.

    Raises:
        ValueError: a tag is out of range, or a key ends with a part that has no end of its own.
    """

    __slots__ = (
        "_by_count", "_by_group", "_expendable", "_group", "_history", "_member", "_order", "_superseded", "name",
        "tags",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        *,
        history_tag: int,
        superseded_tag: int,
        counts_tag: int,
        group: Key,
        order: Key,
        member: Callable[[R], bool],
        expendable: Callable[[R], bool],
    ) -> None:
        for tag in (history_tag, superseded_tag, counts_tag):
            check_tag(name, tag)
        if group.ends_open or order.ends_open:
            raise ValueError(f"index {name!r}: other parts follow group and order, so use text, blob or segment")
        self.name = name
        self.tags = (history_tag, superseded_tag, counts_tag)
        self._group = group
        self._order = order
        self._member = member
        self._expendable = expendable
        self._history = bytes((history_tag,))
        self._superseded = bytes((superseded_tag,))
        self._by_group = bytes((counts_tag, 0))
        self._by_count = bytes((counts_tag, 1))

    # What prune asks

    def superseded_before(self, rows: FamilyReader, *order: Any) -> Iterator[bytes]:
        """The keys of the expendable records that are not the newest of their group and come before `order`, oldest
        first; without `order`, of all of them. Cost: what is yielded."""
        stop = self._superseded + self._order.prefix(*order) if order else None
        return (row_key for _, row_key in rows.scan(prefix=self._superseded, stop=stop))

    def beyond(self, rows: FamilyReader, keep: int) -> Iterator[bytes]:
        """The keys of the expendable records that have `keep` or more newer members in their group, except the newest.

        Cost: the members, in groups that have more than `keep`, beyond the newest `keep`, expendable or not.

        Raises:
            ValueError: `keep` is negative.
        """
        if type(keep) is not int or keep < 0:
            raise ValueError(f"keep is an int from 0, not {keep!r}")
        keep = max(keep, 1)
        for key, _ in rows.scan(prefix=self._by_count):
            count = _MOST - uint32.decode(key, 2)[0]
            if count <= keep:
                return
            for _, value in rows.scan(prefix=self._history + key[6:], limit=count - keep):
                if value[:1] == _EXPENDABLE:
                    yield value[1:]

    def newest_beside(self, rows: FamilyReader, record: R) -> bytes | None:
        """The key of the newest member of the group of `record`, or None if it has none."""
        group = self._group.of(record)
        count, place = self._counted(rows, group)
        value = rows.get(self._history + group + place) if count else None
        return None if value is None else value[1:]

    # What the table asks

    def prepare(
        self, rows: FamilyReader, row_key: bytes, old: R | None, new: R | None, *, instead_of: bytes | None = None
    ) -> tuple[_Member | None, _Member | None] | None:
        before, after = self._of(row_key, old), self._of(row_key, new)
        return None if before == after else (before, after)

    def change(self, rows: FamilyWriter, row_key: bytes, prepared: tuple[_Member | None, _Member | None]) -> None:
        before, after = prepared
        stays = before is not None and after is not None and before[:2] == after[:2]
        if before is not None and not stays:
            self._remove(rows, before.group, before.place)
        if after is not None:
            self._store(rows, after, new=not stays)

    def _of(self, row_key: bytes, record: R | None) -> _Member | None:
        """What the index is to hold of a record; None if that is no member."""
        if record is None or not self._member(record):
            return None
        group, place = self._group.of(record), self._order.of(record) + blob.encode(row_key)
        check_length(self._history + group + place)  # the longest of its rows
        return _Member(group, place, (_EXPENDABLE if self._expendable(record) else _NEEDED) + row_key)

    def _store(self, rows: FamilyWriter, member: _Member, *, new: bool) -> None:
        group, place, value = member
        count, newest = self._counted(rows, group)
        rows.put(self._history + group + place, value)
        if place < newest:
            self._supersede(rows, place, value)
        elif count and place > newest:
            self._supersede(rows, newest, rows.get(self._history + group + newest) or b"")
        if new:
            self._count(rows, group, count, count + 1, max(place, newest))

    def _supersede(self, rows: FamilyWriter, place: bytes, value: bytes) -> None:
        """Note that a member is not the newest of its group: it may go, if it is expendable."""
        if value[:1] == _EXPENDABLE:
            rows.put(self._superseded + place, value[1:])
        else:
            rows.delete(self._superseded + place)

    def _remove(self, rows: FamilyWriter, group: bytes, place: bytes) -> None:
        count, newest = self._counted(rows, group)
        prefix = self._history + group
        rows.delete(prefix + place)
        rows.delete(self._superseded + place)
        if place == newest:
            newest = next((key[len(prefix) :] for key, _ in rows.scan(prefix=prefix, reverse=True, limit=1)), b"")
            rows.delete(self._superseded + newest)
        self._count(rows, group, count, count - 1, newest)

    def _counted(self, rows: FamilyReader, group: bytes) -> tuple[int, bytes]:
        """How many members a group has, and the place of the newest."""
        stored = rows.get(self._by_group + group)
        return (0, b"") if stored is None else (uint32.decode(stored, 0)[0], stored[4:])

    def _count(self, rows: FamilyWriter, group: bytes, before: int, after: int, newest: bytes) -> None:
        """Note how many members a group has now, and the place of the newest."""
        if before >= 2:
            rows.delete(self._by_count + uint32.encode(_MOST - before) + group)
        if after >= 2:
            rows.put(self._by_count + uint32.encode(_MOST - after) + group, b"")
        if after > 0:
            rows.put(self._by_group + group, uint32.encode(after) + newest)
        else:
            rows.delete(self._by_group + group)

    def forget(self, rows: FamilyWriter, row_key: bytes) -> None:
        for key, value in list(rows.scan(prefix=self._history)):
            if value[1:] == row_key:
                _, at = self._group.decode_part(key, 1)
                self._remove(rows, key[1:at], key[at:])

    def expected(self, records: Iterable[tuple[bytes, R]]) -> Iterator[tuple[bytes, bytes]]:
        groups: dict[bytes, list[_Member]] = {}
        for row_key, record in records:
            if (member := self._of(row_key, record)) is not None:
                groups.setdefault(member.group, []).append(member)
        for group, members in groups.items():
            newest = max(members)
            for member in members:
                yield self._history + group + member.place, member.value
                if member.value[:1] == _EXPENDABLE and member is not newest:
                    yield self._superseded + member.place, member.value[1:]
            yield self._by_group + group, uint32.encode(len(members)) + newest.place
            if len(members) >= 2:
                yield self._by_count + uint32.encode(_MOST - len(members)) + group, b""

    def __repr__(self) -> str:
        return f"<RetentionIndex {self.name!r}: {self._group!r}, {self._order!r}>"
