"""Records and events in bytes, and as JSON.

In bytes each is one MessagePack array, strict: every element there, in this order, of its type, and no other. The first
element is the number of the layout; a new layout gets a new number.

A record is ``[1, id, [name, key], kind, execution contract, input schema version, output schema version, status, input,
input fingerprint, output, last error, created by, attempt count, may have applied, compensation attempts, approved,
next attempt at, attempt started at, attempt ended at, lease owner, lease epoch, lease expires at, version,
committed at, created at, updated at]``, an event ``[1, effect id, sequence, audit name of the transition, from status,
to status, attempt, actor, payload, at]``. In them

- an id is 16 bytes; statuses, kinds and names are their stable texts;
- a time is a MessagePack timestamp, exact to the microsecond; a duration is an ISO 8601 text;
- an absent payload is the extension type 0 without data, so that it differs from nil, which is JSON's null; every other
  field that is absent is nil;
- an execution contract is ``[format version, kind, remote idempotency, [verification mode, settle], handler version,
  adapter, require approval, automatic retry, max attempts]``, and an error ``[[class, retry after], message]``.

As JSON each is an object with the names of its fields as keys. Times are RFC 3339 texts, and what is absent is left
out, so that null among the payloads is JSON's null.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from pystate.effects.checks import U32_MAX, as_time, convert
from pystate.effects.contract import ExecutionContract
from pystate.effects.ids import EffectId, EffectKey, EffectName, LogicalKey
from pystate.effects.kinds import EffectKind, ErrorRecord
from pystate.effects.payload import ABSENT, AbsentType, JsonValue, as_json
from pystate.effects.record import EffectRecord
from pystate.effects.requests import EffectEvent
from pystate.effects.state import EffectStatus, Transition
from pystate.errors import IdentityError, MalformedError

__all__ = [
    "decode_event",
    "decode_record",
    "encode_event",
    "encode_record",
    "event_to_json",
    "record_from_json",
    "record_to_json",
]

_U32 = Annotated[int, msgspec.Meta(ge=0, le=U32_MAX)]
_U64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


# Bytes


class _EventLayout(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    layout: Literal[1]
    effect_id: EffectId
    sequence: Annotated[int, msgspec.Meta(ge=1)]
    transition: str
    from_status: EffectStatus
    to_status: EffectStatus
    attempt: _U32
    actor: str | None
    payload: JsonValue | AbsentType
    at: _Time


def _encode_special(value: Any) -> object:
    kind = type(value)
    if kind is EffectId:
        return value.to_bytes()
    if kind is EffectName or kind is LogicalKey:
        return str.__str__(value)
    raise TypeError(f"no stored form for {kind.__name__}")


def _decode_special(kind: type, value: Any) -> object:
    return EffectId.from_bytes(value) if kind is EffectId else kind(value)


def _decode_extension(code: int, data: memoryview) -> object:
    if code == 0 and not data:
        return ABSENT
    raise ValueError(f"no extension type {code} of {len(data)} bytes")


_encode = msgspec.msgpack.Encoder(enc_hook=_encode_special).encode
_decode_record = msgspec.msgpack.Decoder(EffectRecord, dec_hook=_decode_special, ext_hook=_decode_extension).decode
_decode_event = msgspec.msgpack.Decoder(_EventLayout, dec_hook=_decode_special, ext_hook=_decode_extension).decode


def encode_record(record: EffectRecord) -> bytes:
    """A record in bytes. One that was made by its own operations can always be encoded."""
    return _encode(record)


def decode_record(data: bytes) -> EffectRecord:
    """A record out of the bytes of `encode_record`; equal to the one that was encoded.

    Raises:
        MalformedError: anything is missing, left over, of another type or out of its range; or the layout is not known.
    """
    try:
        return _decode_record(data)
    except (ValueError, TypeError, RecursionError) as error:  # those of msgspec are ValueErrors
        raise MalformedError("effect record", str(error)) from None


def encode_event(event: EffectEvent) -> bytes:
    """An event in bytes."""
    return _encode(
        (
            1,
            event.effect_id,
            event.sequence,
            event.transition.audit_name,
            event.from_status,
            event.to_status,
            event.attempt,
            event.actor,
            event.payload,
            event.at,
        )
    )


def decode_event(data: bytes) -> EffectEvent:
    """An event out of the bytes of `encode_event`.

    Raises:
        MalformedError: as for `decode_record`, or a transition that is not known.
    """
    try:
        layout = _decode_event(data)
    except (ValueError, TypeError, RecursionError) as error:
        raise MalformedError("effect event", str(error)) from None
    transition = Transition.parse_audit_name(layout.transition)
    if transition is None:
        raise MalformedError("effect event", f"no transition is called {layout.transition!r}")
    return EffectEvent(
        effect_id=layout.effect_id,
        sequence=layout.sequence,
        transition=transition,
        from_status=layout.from_status,
        to_status=layout.to_status,
        attempt=layout.attempt,
        actor=layout.actor,
        payload=layout.payload,
        at=layout.at,
    )


# JSON


def _plain(value: object) -> object:
    """The JSON form of a field."""
    if isinstance(value, ExecutionContract | ErrorRecord):
        return value.to_json()
    if isinstance(value, EffectKey):
        return {"name": str(value.name), "key": str(value.key)}
    if isinstance(value, datetime):
        return msgspec.to_builtins(value)
    return str.__str__(value) if isinstance(value, str) else value


def _to_json(record: msgspec.Struct, payloads: tuple[str, ...]) -> dict[str, Any]:
    fields = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name in payloads:
            if value is not ABSENT:
                fields[name] = value
        elif value is not None:
            fields[name] = _plain(value)
    return fields


def record_to_json(record: EffectRecord) -> dict[str, Any]:
    """A record as a JSON object. Its payloads are not copied."""
    return _to_json(record, ("input", "output"))


def event_to_json(event: EffectEvent) -> dict[str, Any]:
    """An event as a JSON object, with the audit name of its transition. Its payload is not copied."""
    return _to_json(event, ("payload",)) | {"transition": event.transition.audit_name}


class _KeyShape(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    key: str


class _RecordShape(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    id: str
    key: _KeyShape
    kind: EffectKind
    execution_contract: dict[str, Any] | None = None
    input_schema_version: _U32 = 1
    output_schema_version: _U32 = 1
    status: EffectStatus
    input: JsonValue | AbsentType = ABSENT
    input_fingerprint: str | None = None
    output: JsonValue | AbsentType = ABSENT
    last_error: dict[str, Any] | None = None
    created_by: str | None = None
    attempt_count: _U32
    may_have_applied: bool
    compensation_attempts: _U32
    approved: bool
    next_attempt_at: _Time | None = None
    attempt_started_at: _Time | None = None
    attempt_ended_at: _Time | None = None
    lease_owner: str | None = None
    lease_epoch: _U64
    lease_expires_at: _Time | None = None
    version: _U64
    committed_at: _Time | None = None
    created_at: _Time
    updated_at: _Time


def record_from_json(value: Any) -> EffectRecord:
    """A record out of a decoded JSON object.

    A record from before there were contracts lacks ``execution_contract``, ``input_schema_version`` and
    ``output_schema_version``: it has no contract, and both versions are 1. Whatever else may be absent may be missing,
    or null where it is no payload.

    Raises:
        MalformedError: any other field is missing, a field is unknown, or a value has another shape.
    """
    shape = convert(value, _RecordShape, "effect record")
    fields = msgspec.structs.asdict(shape)
    for name, field in fields.items():
        if isinstance(field, datetime):
            fields[name] = as_time(field, name)
    if shape.execution_contract is not None:
        fields["execution_contract"] = ExecutionContract.from_json(shape.execution_contract)
    if shape.last_error is not None:
        fields["last_error"] = ErrorRecord.from_json(shape.last_error)
    for name in ("input", "output"):
        if fields[name] is not ABSENT:
            fields[name] = as_json(fields[name], name)
    try:
        fields["id"] = EffectId(shape.id)
        fields["key"] = EffectKey(EffectName(shape.key.name), LogicalKey(shape.key.key))
    except IdentityError as error:
        raise MalformedError("effect record", str(error)) from None
    return EffectRecord(**fields)
