"""From 0.43 to 0.44: network tags for each customer, and networks under their names.

Tags. They were everybody's, and become those of the customer with the smallest id: to an entry of the set, the id in
decimal and a zero byte are put in front. An entry that has a zero byte is some customer's already.

Networks. The id goes from the key into the value, and the customers are gone::

             key        value
    old      name, id   [description, networks, customer ids, tag ids, creation time]
    new      name       [id, description, networks, tag ids, creation time]

Of several networks with one name the one with the smallest id is kept. Ids stay; the unused ones below the greatest are
free, the smallest first. A row is current when its value has the new shape, *and* the row with the ids says that its id
is that of its key. Either all are current, or none; so nobody cuts four bytes from a name that has none to lose.
"""

from __future__ import annotations

from collections.abc import Iterator

from pystate import Rewriting
from pystate.errors import CorruptIndexError, UnknownShapeError
from pystate.formats import Migration, Step, StepContext, all_current
from pystate.review.host_network_group import HostNetworkGroup
from pystate.review.migrations.shapes import RowValue, encode_value, shape_of
from pystate.review.stored import U32, Instant
from pystate.tables import KeyIndex

__all__ = ["MIGRATION", "NewNetworkValue", "OldNetworkValue"]

_CUSTOMERS = "customers"
_META = "meta"
_NETWORKS = "networks"
_INDEX = b""
_TAGS = b"network tags"
_IDS_MAX = 1 << 22
"""The row with the ids has a place for each id up to the greatest. One above this is damage, and would fill memory."""


class OldNetworkValue(RowValue, frozen=True):
    """A network; its name and its id are its key."""

    description: str
    networks: HostNetworkGroup
    customer_ids: tuple[U32, ...]
    tag_ids: tuple[U32, ...]
    creation_time: Instant


class NewNetworkValue(RowValue, frozen=True):
    """A network; its name is its key."""

    id: U32
    description: str
    networks: HostNetworkGroup
    tag_ids: tuple[U32, ...]
    creation_time: Instant


old_network = shape_of(OldNetworkValue)
new_network = shape_of(NewNetworkValue)


def give_tags_to_a_customer(rewriting: Rewriting, _: StepContext) -> None:
    """Make the network tags that are nobody's those of the customer with the smallest id, if there is one.

    Raises:
        CorruptIndexError: the ids of the customers or the tags cannot be read.
    """
    meta = rewriting.family(_META)
    customers, tags = rewriting.family(_CUSTOMERS).get(_INDEX), meta.get(_TAGS)
    if customers is None or tags is None:
        return
    ids = KeyIndex.decode(customers, family=_CUSTOMERS, key=_INDEX)
    smallest = next((number for number, _ in ids.entries()), None)
    if smallest is None:
        return
    entries = KeyIndex.decode(tags, family=_META, key=_TAGS)
    unscoped = [(number, entry) for number, entry in entries.entries() if b"\0" not in entry]
    for number, entry in unscoped:
        entries.update(number, b"%d\0" % smallest + entry)
    if unscoped:
        meta.put(_TAGS, entries.encode())


def key_networks_by_name(rewriting: Rewriting, _: StepContext) -> None:
    """Put the networks under their names, and build the row with their ids anew.

    A row whose key is no name and id is dropped: nobody could find it. Unless its value has the new shape: then it is
    a network that the row with the ids has lost, and everything stops.

    Raises:
        UnknownShapeError: a network has neither shape, or an empty name.
        MixedShapesError: some networks are current, and some are not.
        CorruptIndexError: two networks have the same id, or one has an id that no network can have.
    """
    family = rewriting.family(_NETWORKS)
    found = family.get(_INDEX)
    if next((key for key, _ in family.scan(limit=2) if key != _INDEX), None) is not None:
        if all_current(rewriting, _NETWORKS, _Current(found), skip=(_INDEX,)):
            return
    kept: dict[bytes, tuple[int, OldNetworkValue]] = {}
    for name, number, network in _old_networks(rewriting):
        if name not in kept or number < kept[name][0]:
            kept[name] = number, network
    ids = _ids_of({name: number for name, (number, _) in kept.items()})
    family.delete_range(None, None)
    for name, (number, old) in kept.items():
        new = NewNetworkValue(number, old.description, old.networks, old.tag_ids, old.creation_time)
        family.put(name, encode_value(new))
    family.put(_INDEX, ids.encode())


def _is_new(key: bytes, value: bytes) -> bool:
    try:
        new_network(key, value)
    except ValueError:
        return False
    return True


class _Current:
    """Whether a row is current, for a row with the ids."""

    def __init__(self, ids: bytes | None) -> None:
        try:
            self._ids = KeyIndex() if ids is None else KeyIndex.decode(ids)
        except CorruptIndexError:
            self._ids = KeyIndex()  # that of an old format is not looked at; without one that is right, none is current

    def __call__(self, key: bytes, value: bytes) -> bool:
        try:
            network = new_network(key, value)
        except ValueError:
            return False
        return self._ids.get(network.id) == key


def _old_networks(rewriting: Rewriting) -> Iterator[tuple[bytes, int, OldNetworkValue]]:
    """Name, id and the rest of each network, in key order."""
    for key, value in rewriting.family(_NETWORKS).scan():
        if key == _INDEX or (not _is_name_and_id(key) and not _is_new(key, value)):
            continue
        name, number = key[:-4], int.from_bytes(key[-4:], "big")
        try:
            network = old_network(key, value)
            if not name:
                raise ValueError("its name is empty")
        except ValueError as error:
            raise UnknownShapeError(
                family=_NETWORKS, key=key, kind="network", current=_why_not_new(key, value), previous=str(error)
            ) from None
        yield name, number, network


def _is_name_and_id(key: bytes) -> bool:
    try:
        key[:-4].decode()
    except UnicodeDecodeError:
        return False
    return len(key) >= 4


def _why_not_new(key: bytes, value: bytes) -> str:
    try:
        number = new_network(key, value).id
    except ValueError as error:
        return str(error)
    return f"its id is {number}, but the row with the ids does not say that this is its key"


def _ids_of(numbers: dict[bytes, int]) -> KeyIndex:
    """The row with the ids, for names with their ids."""
    names: dict[int, bytes] = {}
    for name, number in numbers.items():
        if (other := names.setdefault(number, name)) != name:
            raise _corrupt(f"the networks {other!r} and {name!r} both have the id {number}")
        if number > _IDS_MAX:
            raise _corrupt(f"the network {name!r} has the id {number}; an id is not greater than {_IDS_MAX}")
    return KeyIndex.of(names)


def _corrupt(reason: str) -> CorruptIndexError:
    return CorruptIndexError(family=_NETWORKS, key=_INDEX, reason=reason)


MIGRATION = Migration(
    ">=0.43.0,<0.44.0",
    "0.44.0",
    [
        Step("give network tags to a customer", give_tags_to_a_customer, needs=[_CUSTOMERS, _META]),
        Step("key networks by name", key_networks_by_name, needs=[_NETWORKS]),
    ],
)
"""The migration."""
