"""`TorExitNode`: the addresses through which the Tor network is left, as of the last list of them.

The list comes as a whole from elsewhere, and as a whole it is written: `TorExitNodes.replace_all` is the only way. The
value of a row is text, ``2023-11-14 22:13:20 UTC``, with a fraction of three or six digits where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import ClassVar

import msgspec

from pystate.review.stored import Instant
from pystate.tables import Key, Scannable, Schema, Writable, rest_text

__all__ = ["TOR_EXIT_NODES", "TorExitNode", "TorExitNodes"]


class TorExitNode(msgspec.Struct, frozen=True, kw_only=True):
    """One address.

    Attributes:
        ip_address: as text, not looked at; its key, not empty.
        updated_at: when it was last seen on a list.
    """

    __table__: ClassVar[str] = "TorExitNodes"

    ip_address: str
    updated_at: Instant


_TEXT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))? UTC", re.ASCII)


class _InstantText:
    """The codec of the value: the instant as text."""

    def encode(self, record: TorExitNode) -> bytes:
        instant: object = record.updated_at  # nobody has checked its type yet
        if not isinstance(instant, datetime) or instant.utcoffset() is None:
            raise ValueError(f"field 'updated_at': an aware datetime expected, not {instant!r}")
        try:
            instant = instant.astimezone(UTC)
        except OverflowError:
            raise ValueError(f"field 'updated_at': {instant!r} is not in the years 1 to 9999 of UTC") from None
        text = instant.replace(microsecond=0, tzinfo=None).isoformat(" ")
        if instant.microsecond:
            digits = f"{instant.microsecond:06}"
            text += f".{digits.removesuffix('000')}"
        return f"{text} UTC".encode()

    def decode(self, key: bytes, value: bytes) -> TorExitNode:
        (ip_address,) = _KEY.decode(key)
        found = _TEXT.fullmatch(value.decode())
        if found is None:
            raise ValueError(f"{value!r} is no instant; YYYY-MM-DD HH:MM:SS[.fraction] UTC expected")
        microsecond = int((found[2] or "").ljust(6, "0")[:6])  # of nine digits the last three are more than we keep
        updated_at = datetime.fromisoformat(found[1]).replace(microsecond=microsecond, tzinfo=UTC)
        return TorExitNode(ip_address=ip_address, updated_at=updated_at)


_KEY = Key(ip_address=rest_text)

TOR_EXIT_NODES: Schema[TorExitNode] = Schema(TorExitNode, family="Tor exit nodes", key=_KEY, value=_InstantText())
"""The schema of the family. No `Table`: only `TorExitNodes` writes here, and only all of it."""


class TorExitNodes(Scannable[TorExitNode]):
    """The exit nodes of a store, of a transaction, or as of a view. `ReviewStore.tor_exit_nodes` makes it.

    Bound to a store, `replace_all` is one commit, tried again on a conflict; bound to a view, it raises ``TypeError``.
    """

    __slots__ = ()

    def replace_all(self, nodes: Iterable[TorExitNode]) -> None:
        """Store exactly `nodes`; all others go, rows that cannot be read too. Cost: all rows.

        Raises:
            KeyExistsError: an address is twice among them. InvalidRecordError: one cannot be stored: its address is
            empty or not text, or its instant naive. Nothing was changed.
        """
        Writable(self._schema, self._source).replace_all(nodes)
