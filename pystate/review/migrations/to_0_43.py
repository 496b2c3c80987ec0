"""From 0.42 to 0.43: families dropped, renamed and made; and networks for each customer.

``allow networks`` and ``block networks`` were everybody's. Each of their rows becomes one row for each customer::

             key                 value
    old      name                [id, name, networks, description]
    new      customer id, name   [id, networks, description]

The new ids count from 0 over the pairs of row and customer, rows in key order, customers in the order of their names.
Without customers the networks are gone: they would be nobody's.
"""

from __future__ import annotations

from pystate import Rewriting
from pystate.errors import CorruptIndexError, UnknownShapeError
from pystate.formats import Migration, Step, StepContext, all_current
from pystate.review.customers import CustomerNetwork
from pystate.review.host_network_group import HostNetworkGroup
from pystate.review.migrations.shapes import RowValue, encode_value, shape_of
from pystate.review.stored import U32, Instant
from pystate.tables import KeyIndex, uint32

__all__ = ["MIGRATION", "CustomerValue", "NewNetworkValue", "OldNetworkValue"]

_CUSTOMERS = "customers"
_NETWORKS = {"allow networks": "allow network", "block networks": "block network"}
_INDEX = b""


class CustomerValue(RowValue, frozen=True):
    """A customer, as it was and is; its name is its key."""

    id: U32
    name: str
    description: str
    networks: tuple[CustomerNetwork, ...]
    creation_time: Instant


class OldNetworkValue(RowValue, frozen=True):
    """An allowed or blocked network of everybody; its name is its key."""

    id: U32
    name: str
    networks: HostNetworkGroup
    description: str


class NewNetworkValue(RowValue, frozen=True):
    """An allowed or blocked network of one customer; the customer and the name are its key."""

    id: U32
    networks: HostNetworkGroup
    description: str


_read_customer = shape_of(CustomerValue)
_read_old = shape_of(OldNetworkValue)
_read_new = shape_of(NewNetworkValue)


def old_network(key: bytes, value: bytes) -> OldNetworkValue:
    """The shape of a network of everybody. Its name is about to go from the value, so the key must say the same."""
    network = _read_old(key, value)
    if network.name.encode() != key:
        raise ValueError(f"its name is {network.name!r}, but its key is {key!r}")
    return network


def new_network(key: bytes, value: bytes) -> NewNetworkValue:
    """The shape of a network of one customer."""
    if len(key) < 4:
        raise ValueError(f"its key {key!r} is too short for the id of a customer")
    key[4:].decode()
    return _read_new(key, value)


def give_networks_to_customers(rewriting: Rewriting, _: StepContext) -> None:
    """Make of each allowed and blocked network one for each customer.

    Raises:
        UnknownShapeError: a customer cannot be read, or a network has neither shape.
        MixedShapesError: some networks of a family are those of a customer already, and some are not.
        CorruptIndexError: two customers have the same id.
    """
    customers = _customer_ids(rewriting)
    made = {family: _made(rewriting, family, customers) for family in _NETWORKS}
    for family, rows in made.items():
        if rows is not None:
            handle = rewriting.family(family)
            handle.delete_range(None, None)
            handle.update(rows)


def _customer_ids(rewriting: Rewriting) -> list[int]:
    """The ids of all customers, in the order of their names."""
    found: dict[int, bytes] = {}
    for key, value in rewriting.family(_CUSTOMERS).scan():
        if key == _INDEX:
            continue
        try:
            customer = _read_customer(key, value)
            if customer.name.encode() != key:
                raise ValueError(f"its name is {customer.name!r}, but its key is {key!r}")
        except ValueError as error:
            text = str(error)
            raise UnknownShapeError(family=_CUSTOMERS, key=key, kind="customer", current=text, previous=text) from None
        if (other := found.setdefault(customer.id, key)) != key:
            reason = f"the customers {other!r} and {key!r} both say that their id is {customer.id}"
            raise CorruptIndexError(family=_CUSTOMERS, key=_INDEX, reason=reason)
    return list(found)


def _made(rewriting: Rewriting, family: str, customers: list[int]) -> dict[bytes, bytes] | None:
    """The rows that take the place of all there are; None if there are none, or they are as they shall be."""
    if all_current(rewriting, family, _is_current, skip=(_INDEX,)):
        return None
    ids = KeyIndex(family=family, key=_INDEX)
    rows: dict[bytes, bytes] = {}
    for key, value in rewriting.family(family).scan():
        if key == _INDEX:
            continue
        try:
            old = old_network(key, value)
        except ValueError as error:
            raise _neither(family, key, value, error) from None
        for customer_id in customers:
            new_key = uint32.encode(customer_id) + key
            new = NewNetworkValue(ids.insert(new_key), old.networks, old.description)
            rows[new_key] = encode_value(new)
    rows[_INDEX] = ids.encode()
    return rows


def _is_current(key: bytes, value: bytes) -> bool:
    try:
        new_network(key, value)
    except ValueError:
        return False
    return True


def _neither(family: str, key: bytes, value: bytes, previous: ValueError) -> UnknownShapeError:
    try:
        new_network(key, value)
    except ValueError as error:
        current = str(error)
    else:
        current = "none"
    return UnknownShapeError(family=family, key=key, kind=_NETWORKS[family], current=current, previous=str(previous))


MIGRATION = Migration(
    ">=0.42.0,<0.43.0",
    "0.43.0",
    [
        Step.dropping("account policy"),
        Step.renaming("TI database", "label database"),
        Step.creating("triage exclusion reason"),
        Step("give networks to customers", give_networks_to_customers, needs=[_CUSTOMERS, *_NETWORKS]),
    ],
)
"""The migration."""
