"""`EventTags`, `NetworkTags`, `WorkflowTags`: texts with small ids, by which other records refer to them.

Each kind is an `IndexedSet` in family ``meta``. Texts need not differ, and may be empty. All customers share the set of
network tags: an entry is the id of the customer in decimal, a zero byte, and the text, and `NetworkTags` shows and
changes those of one customer only.

Promise: when another tag gets the id of a removed one, no record here refers to that id any more. (Events
refer to event tags. They are not stored here, so whoever stores them must see to that.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple, TypeVar

import msgspec

from pystate import FamilyReader, Store, Transaction, View, transact
from pystate.errors import DecodeError, NoSuchIdError
from pystate.review.networks import NETWORKS, Network
from pystate.tables import IndexedSet, rest_text, uint32

__all__ = ["EventTags", "NetworkTags", "Tag", "WorkflowTags"]

T = TypeVar("T")

_FAMILY = "meta"


class Tag(NamedTuple):
    """A tag.

    Attributes:
        id: by which records refer to it.
        text: of it.
    """

    id: int
    text: str


class _Tags:
    """What the three kinds have in common."""

    __slots__ = ("_prefix", "_source")

    _set: ClassVar[IndexedSet]

    def __init__(self, source: Store | Transaction | View, prefix: bytes = b"") -> None:
        source.family(_FAMILY)
        self._source = source
        self._prefix = prefix

    def entries(self) -> list[Tag]:
        """All tags, in the order of their ids, as they are now.

        Raises:
            DecodeError: one is no text. CorruptIndexError: the set cannot be read.
        """
        found = self._set.entries(self._source.family(_FAMILY))
        return [Tag(at, self._text(at, entry)) for at, entry in found if entry.startswith(self._prefix)]

    def get(self, id: int) -> str | None:  # noqa: A002
        """The text of the tag with this id; None when there is none.

        Raises:
            DecodeError, CorruptIndexError: see `entries`. TypeError: it is no int.
        """
        entry = self._own(self._source.family(_FAMILY), id)
        return None if entry is None else self._text(id, entry)

    def insert(self, text: str) -> int:
        """Add a tag and return its id: the one freed last, or the next new one. There may be others with this text.

        Raises:
            ValueError: the text cannot be written as UTF-8. IndexFullError: there are no more ids.
            CorruptIndexError: see `entries`.
        """
        entry = self._entry(text)
        return self._writing(lambda txn: self._set.insert(txn.family(_FAMILY), entry))

    def update(self, id: int, old: str, new: str) -> bool:  # noqa: A002
        """Give a tag another text, if it is `old`; return whether it was. If not, or if there is none, nothing changes.

        Raises:
            ValueError: a text cannot be written as UTF-8. CorruptIndexError: see `entries`. TypeError: `id` is no int.
        """
        before, after = self._entry(old), self._entry(new)
        return self._writing(lambda txn: self._set.update(txn.family(_FAMILY), id, before, after))

    def remove(self, id: int) -> str:  # noqa: A002
        """Remove a tag, and its id from every record that refers to it; return its text. The next tag gets the id.

        Raises:
            NoSuchIdError: there is no such tag now. IdOutOfRangeError: the id was never given out.
            DecodeError: see `entries`; or a record that may refer to it cannot be read. TypeError: `id` is no int.

        Cost: all records that may refer to tags of this kind.
        """

        def remove(txn: Transaction) -> str:
            rows = txn.family(_FAMILY)
            entry = self._own(rows, id)
            if entry is None and self._set.get(rows, id) is not None:
                raise NoSuchIdError(family=_FAMILY, key=self._set.key, id=id)
            drop = self._references(txn, id)
            text = "" if entry is None else self._text(id, entry)
            self._set.deactivate(rows, id)  # refuses an id that nothing has
            drop()
            self._set.clear_inactive(rows)
            return text

        return self._writing(remove)

    def check(self) -> list[str]:
        """What is wrong with the set, in words; empty when all is right. The tags of all customers are one set."""
        return self._set.check(self._source.family(_FAMILY))

    def _references(self, txn: Transaction, id: int) -> Callable[[], None]:  # noqa: A002
        """Read what refers to a tag, and return what drops the references."""
        return lambda: None

    def _writing(self, function: Callable[[Transaction], T]) -> T:
        if isinstance(self._source, View):
            raise TypeError("these tags are bound to a view, which is for reading; bind to a store or a transaction")
        return transact(self._source, function)

    def _own(self, rows: FamilyReader, id: int) -> bytes | None:  # noqa: A002
        """The entry with this id, if it is one of these tags."""
        entry = self._set.get(rows, id)
        return entry if entry is not None and entry.startswith(self._prefix) else None

    def _entry(self, text: str) -> bytes:
        return self._prefix + rest_text.encode(text)

    def _text(self, id: int, entry: bytes) -> str:  # noqa: A002
        try:
            return rest_text.decode(entry, len(self._prefix))[0]
        except ValueError as error:
            reason = f"the entry with id {id}: {error}"
            raise DecodeError(family=_FAMILY, key=self._set.key, kind="Tag", reason=reason) from None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in {self._source!r}>"


class EventTags(_Tags):
    """The tags of events, in a store, a transaction, or as of a view. `ReviewStore.event_tags` makes it.

    Bound to a store, every write is one commit, tried again on a conflict; bound to a view, a ``TypeError``.
    """

    __slots__ = ()

    _set = IndexedSet(family=_FAMILY, key=b"event tags")


class WorkflowTags(_Tags):
    """The tags of workflows. Otherwise as `EventTags`; nothing refers to them. `ReviewStore.workflow_tags` makes it."""

    __slots__ = ()

    _set = IndexedSet(family=_FAMILY, key=b"workflow tags")


class NetworkTags(_Tags):
    """The tags of networks that are one customer's. Otherwise as `EventTags`. `ReviewStore.network_tags` makes it.

    `Network.tag_ids` refers to them. An id of another customer's tag is one that nothing has.

    Arguments:
        source: an open store, transaction or view.
        customer_id: the customer, from 0 to 4,294,967,295.

    Raises:
        TypeError, ValueError: the id is none.
    """

    __slots__ = ()

    _set = IndexedSet(family=_FAMILY, key=b"network tags")

    def __init__(self, source: Store | Transaction | View, customer_id: int) -> None:
        uint32.encode(customer_id)
        super().__init__(source, f"{customer_id}\0".encode())

    def _references(self, txn: Transaction, id: int) -> Callable[[], None]:  # noqa: A002
        rows = txn.family(NETWORKS.family)
        referring: list[tuple[bytes, Network]] = []
        for key, value in NETWORKS.scan(rows):
            network = NETWORKS.decode(key, value)
            if id in network.tag_ids:
                referring.append((key, network))

        def drop() -> None:
            for key, network in referring:
                kept = tuple(tag_id for tag_id in network.tag_ids if tag_id != id)
                NETWORKS.replace_row(rows, key, network, msgspec.structs.replace(network, tag_ids=kept))

        return drop
