"""How effects and their events stand in a store: two families, the rows in them, and the indexes.

In the family ``effects`` a row for each record, and the rows of its indexes::

    00 id                                      the record (`record_format`)
    f8 name, key                               "key"      every record; unique
    f9 status                                  "status"   every record: a page of a status, in the order of ids
    fa end of the lease, or none               "lease"    executing and verifying: whose lease has expired
    fb next attempt, or none                   "due"      pending, unknown, compensating: whose time has come
    fc status, updated at                      "settled"  settled ones: what is old enough to go

The rows of indexes hold the key of the record's row, and all but those of "key" end with it, so equal ones come in the
order of ids. Statuses are the numbers below. In the family ``effect events`` there is a row for each event, under
``00 id, sequence``, and nothing else.

What must be looked for stands in an index with nothing else: settled records, which pile up, are in no row that
recovery reads. A lease changes the row of its own record and one row of "lease", and reads no other, so it conflicts
with work on the same effect only. Only ``operations`` writes these rows.
"""

from __future__ import annotations

from pystate.effects.ids import EffectId
from pystate.effects.queries import DOUBTFUL, RESUMABLE
from pystate.effects.record import EffectRecord
from pystate.effects.record_format import decode_event, decode_record, encode_event, encode_record
from pystate.effects.requests import EffectEvent
from pystate.effects.state import EffectStatus
from pystate.tables import Index, Key, Part, Schema, instant, optional, text, uint64

__all__ = ["BY_DUE_TIME", "BY_KEY", "BY_LEASE", "BY_SETTLING", "BY_STATUS", "EFFECTS", "EVENTS"]

_STATUS_NUMBERS = {
    EffectStatus.PENDING: 1,
    EffectStatus.AWAITING_APPROVAL: 2,
    EffectStatus.EXECUTING: 3,
    EffectStatus.UNKNOWN: 4,
    EffectStatus.VERIFYING: 5,
    EffectStatus.COMMITTED: 6,
    EffectStatus.FAILED: 7,
    EffectStatus.REJECTED: 8,
    EffectStatus.NEEDS_INTERVENTION: 9,
    EffectStatus.COMPENSATING: 10,
    EffectStatus.COMPENSATED: 11,
    EffectStatus.COMPENSATION_FAILED: 12,
}
"""Part of the format: a number is never changed, nor given to another status."""


class _IdPart(Part[EffectId]):
    """An id in 17 bytes, the first of them zero: an id may begin with any byte, a record's row may not."""

    width = 17

    def encode(self, value: EffectId) -> bytes:
        if type(value) is not EffectId:
            raise TypeError(f"an EffectId expected, not {type(value).__name__}")
        return b"\x00" + value.to_bytes()

    def decode(self, data: bytes, at: int) -> tuple[EffectId, int]:
        piece = data[at : at + 17]
        if len(piece) != 17 or piece[0] != 0:
            raise ValueError(f"00 and the 16 bytes of an id expected at offset {at}, {piece.hex()} found")
        return EffectId.from_bytes(piece[1:]), at + 17


class _StatusPart(Part[EffectStatus]):
    """A status in one byte."""

    width = 1

    def __init__(self) -> None:
        self._numbers = {status: bytes((number,)) for status, number in _STATUS_NUMBERS.items()}
        self._statuses = {number: status for status, number in self._numbers.items()}

    def encode(self, value: EffectStatus) -> bytes:
        if type(value) is not EffectStatus:
            raise TypeError(f"an EffectStatus expected, not {type(value).__name__}")
        return self._numbers[value]

    def decode(self, data: bytes, at: int) -> tuple[EffectStatus, int]:
        status = self._statuses.get(data[at : at + 1])
        if status is None:
            raise ValueError(f"the number of a status expected at offset {at}, {data[at : at + 1].hex()!r} found")
        return status, at + 1


class _RecordValue:
    """Records as `record_format` writes them; one that stands under the id of another is refused."""

    def encode(self, record: EffectRecord) -> bytes:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes) -> EffectRecord:
        record = decode_record(value)
        if key[1:] != record.id.to_bytes():
            raise ValueError(f"it is the record of effect {record.id}")
        return record


class _EventValue:
    """Events as `record_format` writes them; one that stands in the place of another is refused."""

    def encode(self, record: EffectEvent) -> bytes:
        return encode_event(record)

    def decode(self, key: bytes, value: bytes) -> EffectEvent:
        event = decode_event(value)
        if key[1:] != event.effect_id.to_bytes() + uint64.encode(event.sequence):
            raise ValueError(f"it is event {event.sequence} of effect {event.effect_id}")
        return event


_ID = _IdPart()
_STATUS = _StatusPart()
_DOUBTFUL = frozenset(DOUBTFUL)
_RESUMABLE = frozenset(RESUMABLE)

BY_KEY = Index[EffectRecord]("key", tag=0xF8, key=Key(**{"key.name": text, "key.key": text}), unique=True)
BY_STATUS = Index[EffectRecord]("status", tag=0xF9, key=Key(status=_STATUS))
BY_LEASE = Index[EffectRecord](
    "lease",
    tag=0xFA,
    key=Key(lease_expires_at=optional(instant)),
    condition=lambda record: record.status in _DOUBTFUL,
)
BY_DUE_TIME = Index[EffectRecord](
    "due",
    tag=0xFB,
    key=Key(next_attempt_at=optional(instant)),
    condition=lambda record: record.status in _RESUMABLE,
)
BY_SETTLING = Index[EffectRecord](
    "settled",
    tag=0xFC,
    key=Key(status=_STATUS, updated_at=instant),
    condition=lambda record: record.status.is_settled,
)

EFFECTS = Schema(
    EffectRecord,
    family="effects",
    key=Key(id=_ID),
    value=_RecordValue(),
    indexes=[BY_KEY, BY_STATUS, BY_LEASE, BY_DUE_TIME, BY_SETTLING],
)
EVENTS = Schema(EffectEvent, family="effect events", key=Key(effect_id=_ID, sequence=uint64), value=_EventValue())
