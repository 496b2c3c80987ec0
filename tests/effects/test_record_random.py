"""Random histories: workers, operators and clocks that do what they like, and what holds all the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from hypothesis import event as note
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pystate.effects import (
    ABSENT,
    ALL_TRANSITIONS,
    EffectEvent,
    EffectId,
    EffectKind,
    EffectRecord,
    EffectStatus,
    EffectStoreError,
    FailureClass,
    InvalidTransitionError,
    Lease,
    LeaseHeldError,
    LeaseLostError,
    Transition,
    TransitionRequest,
    VersionConflictError,
    decode_record,
    encode_record,
)
from tests.effects.samples import TTL, T, error, fresh, seconds
from tests.effects.trails import check_trail

NEVER_CHANGED = (
    "id", "key", "kind", "execution_contract", "input_schema_version", "input", "input_fingerprint", "created_by",
    "created_at",
)  # fmt: skip
WORKERS = ["a", "b", "c"]
some_json: st.SearchStrategy[Any] = st.sampled_from([None, 0, "x", [], {"a": [1, None]}])
draw_fields = st.fixed_dictionaries(
    {},
    optional={
        "output": some_json,
        "output_schema_version": st.sampled_from([0, 1, 7]),
        "error": st.sampled_from([error("refused"), error("no", None), error("429", FailureClass.rate_limited(TTL))]),
        "next_attempt_at": st.integers(-100, 500).map(T),
        "actor": st.sampled_from(WORKERS),
        "payload": some_json,
    },
)


def bookkeeping(before: EffectRecord, request: TransitionRequest, to: EffectStatus) -> EffectRecord:
    """What an accepted request makes of a record: a second copy of the rules, in their order, one field at a time."""
    fields: dict[str, Any] = {}
    name = request.transition.name
    given = request.next_attempt_at
    if name == "OUTCOME_UNKNOWN" and given:
        fields["next_attempt_at"] = max(given, before.next_attempt_at or given)
    if name in ("SCHEDULE_RETRY", "RESOLVED_RETRY", "SCHEDULE_COMPENSATION_RETRY"):
        fields["next_attempt_at"] = given or request.now
    if name in ("START_ATTEMPT", "START_COMPENSATION", "START_COMPENSATION_RETRY"):
        fields["next_attempt_at"] = None
    if name == "START_ATTEMPT":
        fields |= {"attempt_count": before.attempt_count + 1, "attempt_started_at": request.now}
        fields |= {"attempt_ended_at": None, "output": ABSENT}
    if name == "APPROVE":
        fields["approved"] = True
    if name == "START_COMPENSATION":
        fields["compensation_attempts"] = 1
    if name == "START_COMPENSATION_RETRY":
        fields["compensation_attempts"] = before.compensation_attempts + 1
    if before.status.name == "EXECUTING":
        fields["attempt_ended_at"] = request.now
    if to.name == "COMMITTED":
        fields["committed_at"] = request.now
    if to.name == "UNKNOWN":
        fields["may_have_applied"] = True
    if name.endswith("NOT_APPLIED") or (name == "SCHEDULE_RETRY" and before.status.name == "VERIFYING"):
        fields["may_have_applied"] = False
    if request.output is not ABSENT:
        version = request.output_schema_version
        fields |= {"output": request.output, "output_schema_version": 1 if version is None else version}
    if request.error is not None:
        fields["last_error"] = request.error
    return replace(before, status=to, version=before.version + 1, updated_at=request.now, **fields)


class World:
    """One record, every lease and version ever seen, and a clock."""

    def __init__(self, kind: EffectKind) -> None:
        self.record = self.first = fresh(kind, input={"amount": 1})
        self.events: list[EffectEvent] = []
        self.leases = [Lease(effect_id=EffectId.new(), owner="a", epoch=1, expires_at=T(10_000))]
        self.now = 0

    @property
    def time(self) -> datetime:
        return T(self.now)

    def attempt(self, operation: Callable[[EffectRecord], tuple[EffectRecord, Any]]) -> Any:
        """Run an operation; on an error nothing may have changed."""
        before, kept = self.record, replace(self.record)
        try:
            after, result = operation(before)
        except EffectStoreError as refusal:
            after, result = before, refusal
        assert before == kept, "an operation changed its own record"
        for name in NEVER_CHANGED:
            assert getattr(after, name) == getattr(self.first, name)
        self.record = after
        note(type(result).__name__)
        return result

    def acquire(self, owner: str, ttl: timedelta) -> None:
        before, live = self.record, self.record.live_lease_owner(self.time)
        result = self.attempt(lambda record: record.acquire_lease(owner, self.time, ttl))
        if live is not None:
            assert isinstance(result, LeaseHeldError) and result.owner == live
            return
        assert result == Lease(
            effect_id=before.id, owner=owner, epoch=before.lease_epoch + 1, expires_at=self.time + ttl
        )
        self.check_only_the_lease_changed(before)
        self.leases.append(result)

    def renew(self, lease: Lease, ttl: timedelta) -> None:
        before, live = self.record, self.is_live(lease)
        result = self.attempt(lambda record: record.renew_lease(lease, self.time, ttl))
        assert live == (not isinstance(result, LeaseLostError))
        if live:
            assert result == replace(lease, expires_at=self.record.lease_expires_at)
            assert self.record.lease_epoch == before.lease_epoch
            self.leases.append(result)
        self.check_only_the_lease_changed(before)

    def release(self, lease: Lease) -> None:
        before = self.record
        newest = (
            lease.effect_id == before.id and lease.epoch == before.lease_epoch and lease.owner == before.lease_owner
        )
        assert self.attempt(lambda record: record.release_lease(lease)) is newest
        if newest:
            assert self.record.live_lease_owner(T(-10_000)) is None
        else:
            assert self.record is before
        assert self.record.lease_epoch == before.lease_epoch
        self.check_only_the_lease_changed(before)

    def apply(self, request: TransitionRequest) -> None:
        before = self.record
        result = self.attempt(lambda record: record.apply(request))
        if isinstance(result, EffectEvent):
            self.check_accepted(before, request, result)
            self.events.append(result)
        else:
            assert type(result) is self.expected_refusal(request)
            assert self.record is before

    def is_live(self, lease: Lease) -> bool:
        record = self.record
        same = (lease.effect_id, lease.epoch, lease.owner) == (record.id, record.lease_epoch, record.lease_owner)
        return same and record.lease_expires_at is not None and record.lease_expires_at > self.time

    def expected_refusal(self, request: TransitionRequest) -> type[EffectStoreError] | None:
        """Which of the four checks a request fails first; None for none of them."""
        record = self.record
        if request.lease is None:
            if record.live_lease_owner(request.now) is not None:
                return LeaseHeldError
        elif not self.is_live(request.lease):
            return LeaseLostError
        if request.expected_version != record.version:
            return VersionConflictError
        doubted = record.may_have_applied and record.kind is not EffectKind.READ
        if request.transition not in record.status.exits or (
            request.transition is Transition.FAILED_DEFINITIVELY and doubted
        ):
            return InvalidTransitionError
        return None

    def check_accepted(self, before: EffectRecord, request: TransitionRequest, event: EffectEvent) -> None:
        after = self.record
        self.record = before
        assert self.expected_refusal(request) is None
        self.record = after
        assert after == bookkeeping(before, request, event.to_status)
        assert (event.sequence, event.attempt, event.at) == (after.version, after.attempt_count, request.now)
        assert (event.from_status, event.to_status) == (before.status, after.status)
        assert (event.transition, event.actor) == (request.transition, request.actor)
        assert event.payload is request.payload

    def check_only_the_lease_changed(self, before: EffectRecord) -> None:
        lease = {name: getattr(before, name) for name in ("lease_owner", "lease_epoch", "lease_expires_at")}
        assert replace(self.record, **lease) == before


#: So that histories get far: what ends them early is rare, and what a worker would do is frequent.
RARE = {Transition.PRECONDITION_REJECTED, Transition.DENY, Transition.REQUEST_APPROVAL, Transition.FAILED_DEFINITIVELY}


def draw_request(data: st.DataObject, world: World) -> TransitionRequest:
    record = world.record
    likely = [transition for transition in record.status.exits if transition not in RARE]
    transition = data.draw(st.sampled_from([*likely * 12, *record.status.exits, *ALL_TRANSITIONS]))
    right = next((lease for lease in reversed(world.leases) if world.is_live(lease)), None)
    lease = data.draw(st.sampled_from([*[right] * 12, None, *world.leases[-3:]]))
    fields: dict[str, Any] = data.draw(draw_fields)
    request = TransitionRequest.new(record, lease, transition, world.time, **fields)
    stale = data.draw(st.sampled_from([0] * 12 + [-1, 1]))
    return replace(request, expected_version=record.version + stale)


def take_step(data: st.DataObject, world: World) -> None:
    world.now += data.draw(st.sampled_from([1, 1, 1, 1, 0, 5, 40, -3]))
    step = data.draw(st.sampled_from([*["apply"] * 8, "acquire", "renew", "release"]))
    if step == "acquire":
        world.acquire(data.draw(st.sampled_from(WORKERS)), seconds(data.draw(st.sampled_from([300, 30, 3, 0]))))
    elif step == "renew":
        world.renew(data.draw(st.sampled_from(world.leases[-3:])), seconds(data.draw(st.sampled_from([30, 3, 0]))))
    elif step == "release":
        world.release(data.draw(st.sampled_from(world.leases[-3:])))
    else:
        world.apply(draw_request(data, world))


@given(st.data(), st.sampled_from(EffectKind))
def test_the_invariants_hold_whatever_is_done(data: st.DataObject, kind: EffectKind) -> None:
    """Check E87, as far as records go: ten invariants over random leases, requests, versions and times.

    Every refusal is the first one of the rules' order, leaves the record as it was, and makes no event (E42, E65).
    """
    world = World(kind)
    for _ in range(data.draw(st.integers(20, 40))):
        take_step(data, world)
        check_trail(world.record, world.events)
    assert decode_record(encode_record(world.record)) == world.record
    note(f"status: {world.record.status}")


@given(st.lists(st.sampled_from(ALL_TRANSITIONS), max_size=60), st.sampled_from(EffectKind))
def test_an_approval_that_is_asked_for_comes_first(transitions: list[Transition], kind: EffectKind) -> None:
    """Invariant 10, for a caller that keeps to it: a start waits for the approval."""
    record, events = fresh(kind), []
    for number, transition in enumerate(transitions):
        if transition is Transition.START_ATTEMPT and not record.approved:
            continue
        try:
            record, event = record.apply(TransitionRequest.new(record, None, transition, T(number)))
        except InvalidTransitionError:
            continue
        events.append(event)
    check_trail(record, events, approval_required=True)


@given(st.lists(st.sampled_from(ALL_TRANSITIONS), max_size=60))
def test_in_doubt_means_that_nobody_says_it_failed(transitions: list[Transition]) -> None:
    """`failed` is only reached when nothing is in doubt: the point of the whole ledger."""
    record = fresh()
    for number, transition in enumerate(transitions):
        try:
            record, _ = record.apply(TransitionRequest.new(record, None, transition, T(number)))
        except InvalidTransitionError:
            continue
        if record.status is EffectStatus.FAILED:
            assert not record.may_have_applied
