"""Strategies for what effects carry and record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from pystate.effects import (
    ABSENT,
    EffectEvent,
    EffectId,
    EffectKey,
    EffectKind,
    EffectName,
    EffectRecord,
    EffectStatus,
    ErrorRecord,
    ExecutionContract,
    FailureClass,
    LogicalKey,
    Transition,
    VerificationContract,
)

__all__ = ["contracts", "effect_keys", "errors", "events", "failure_classes", "json_values", "records", "times", "u32"]

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
times = st.datetimes(timezones=st.just(UTC)) | st.sampled_from(
    [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)]
)
durations = st.timedeltas(min_value=timedelta(0)) | st.sampled_from([timedelta.max, timedelta.resolution])

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
payloads = st.just(ABSENT) | json_values

failure_classes = st.sampled_from(
    [
        FailureClass.TRANSIENT,
        FailureClass.AMBIGUOUS,
        FailureClass.PERMANENT,
        FailureClass.AUTHENTICATION,
        FailureClass.AUTHORIZATION,
        FailureClass.VALIDATION,
    ]
) | st.builds(FailureClass.rate_limited, st.none() | durations)
errors = st.builds(ErrorRecord, failure_class=st.none() | failure_classes, message=texts)
effect_keys = st.builds(EffectKey, names.map(EffectName), names.map(LogicalKey))
ids = st.binary(min_size=16, max_size=16).map(EffectId.from_bytes)
kinds = st.sampled_from(EffectKind)
verifications = st.sampled_from([VerificationContract.NONE, VerificationContract.AUTHORITATIVE]) | st.builds(
    VerificationContract.eventually_consistent, durations
)
contracts = st.builds(
    ExecutionContract,
    format_version=st.just(1) | u32,
    kind=kinds,
    remote_idempotency=st.booleans(),
    verification=verifications,
    handler_version=texts,
    adapter=st.none() | texts,
    require_approval=st.booleans(),
    automatic_retry=st.booleans(),
    max_attempts=u32,
)
records = st.builds(
    EffectRecord,
    id=ids,
    key=effect_keys,
    kind=kinds,
    execution_contract=st.none() | contracts,
    input_schema_version=u32,
    output_schema_version=u32,
    status=st.sampled_from(EffectStatus),
    input=payloads,
    input_fingerprint=st.none() | texts,
    output=payloads,
    last_error=st.none() | errors,
    created_by=st.none() | texts,
    attempt_count=u32,
    may_have_applied=st.booleans(),
    compensation_attempts=u32,
    approved=st.booleans(),
    next_attempt_at=st.none() | times,
    attempt_started_at=st.none() | times,
    attempt_ended_at=st.none() | times,
    lease_owner=st.none() | texts,
    lease_epoch=u64,
    lease_expires_at=st.none() | times,
    version=u64,
    committed_at=st.none() | times,
    created_at=times,
    updated_at=times,
)
events = st.builds(
    EffectEvent,
    effect_id=ids,
    sequence=st.integers(1, 2**64 - 1),
    transition=st.sampled_from(Transition),
    from_status=st.sampled_from(EffectStatus),
    to_status=st.sampled_from(EffectStatus),
    attempt=u32,
    actor=st.none() | texts,
    payload=payloads,
    at=times,
)
