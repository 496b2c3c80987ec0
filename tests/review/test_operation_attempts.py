"""`OperationAttempts`: upsert, get, iterate, delete, and one live attempt for each triple."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pystate
from pystate import Store
from pystate.errors import DecodeError, InvalidRecordError, SlotTakenError
from pystate.review.operation_attempt import (
    FAMILY,
    OPERATION_ATTEMPTS,
    CleanupState,
    OperationAttempt,
    Outcome,
    Phase,
    RetryPolicy,
)
from pystate.review.operation_attempts import OperationAttempts
from tests.review.attempts import (
    CORE,
    HOST,
    ONB,
    OTHER,
    OWING,
    PIG,
    L,
    M,
    T,
    at,
    attempts_of,
    changed,
    checked_store,
    format_keys,
    keys,
    overwrite,
    raw_keys,
)

DONE = {"phase": Phase.COMPLETED, "outcome": Outcome.SUCCEEDED}


@pytest.fixture
def store() -> Iterator[Store]:
    with checked_store() as store:
        yield store


@pytest.fixture
def attempts(store: Store) -> OperationAttempts:
    return attempts_of(store)


def tries(attempts: OperationAttempts, *given: OperationAttempt) -> list[bool]:
    """Upsert one after the other; whether each was accepted."""
    accepted = []
    for attempt in given:
        try:
            attempts.upsert(attempt)
        except SlotTakenError:
            accepted.append(False)
        else:
            accepted.append(True)
    return accepted


# ---- upsert, get, delete


def test_same_key_again_replaces_the_attempt(attempts: OperationAttempts) -> None:
    """Check R56, row 104."""
    attempts.upsert(M("op-1"))
    policy = RetryPolicy(max_attempts=5, attempts_made=2, backoff_seconds=30)
    second = M("op-1", host="host-z.example", retry_policy=policy, **DONE)
    attempts.upsert(second)
    assert list(attempts.iter()) == [second]


@pytest.mark.parametrize("second", [{}, {"host": "host-z.example", **DONE}, {"cleanup_state": OWING}], ids=str)
def test_delete_leaves_no_row(store: Store, attempts: OperationAttempts, second: dict[str, object]) -> None:
    """Check R57: nor any of the indexes that are not of the format."""
    attempts.upsert(M("op-1"))
    attempts.upsert(M("op-1", **second))
    attempts.delete("op-1")
    assert attempts.get("op-1") is None
    assert raw_keys(store) == []


def test_instance_reads_back_as_given(attempts: OperationAttempts) -> None:
    """Check R58."""
    attempts.upsert(M("m"))
    attempts.upsert(CORE("c"))
    assert [attempt.instance for attempt in attempts.iter()] == [None, 1]


def test_onboarding_has_empty_fields_and_a_deadline(attempts: OperationAttempts) -> None:
    """Check R59."""
    attempts.upsert(ONB("o"))
    stored = attempts.get("o")
    assert stored is not None
    assert (stored.target, stored.package_digest, stored.resolved_version, stored.resolved_commit) == ("",) * 4
    assert stored.expires_at == at(1_700_003_800)


def test_backup_reads_back_as_given(attempts: OperationAttempts) -> None:
    """Check R60."""
    update, other = CORE("c", backup_id=7, pre_update_version="0.46.0"), M("m")
    attempts.upsert(update)
    attempts.upsert(other)
    assert (attempts.get("c"), attempts.get("m")) == (update, other)


@pytest.mark.parametrize(
    "fields",
    [{"backup_id": 7}, {"pre_update_version": "0.46.0"}, {"target": ""}, {"action": ONB("o").action}],
    ids=str,
)
def test_what_only_callers_promise_is_stored_as_given(attempts: OperationAttempts, fields: dict[str, object]) -> None:
    """Section 6.1: that target is empty for ONBOARD, and that both backup fields go together, is not enforced."""
    attempts.upsert(M("op-1", **fields))
    assert attempts.get("op-1") == M("op-1", **fields)


def test_attempts_with_other_keys_are_other_rows(attempts: OperationAttempts) -> None:
    """Check R61."""
    attempts.upsert(M("op-host-a"))
    attempts.upsert(M("op-host-b", host=OTHER))
    attempts.upsert(M("op-commit-1", resolved_commit="1111111", **DONE))
    attempts.upsert(M("op-commit-2", resolved_commit="2222222", **DONE))
    assert keys(attempts.iter()) == ["op-commit-1", "op-commit-2", "op-host-a", "op-host-b"]


def test_reading_setting_and_storing_keeps_the_rest(attempts: OperationAttempts) -> None:
    """Check R73."""
    attempts.upsert(M("f"))
    read = attempts.get("f")
    assert read is not None
    policy = RetryPolicy(max_attempts=5, attempts_made=1, backoff_seconds=30)
    attempts.upsert(changed(read, retry_policy=policy, **DONE))
    assert list(attempts.iter()) == [M("f", retry_policy=policy, **DONE)]


def test_upsert_refuses_an_empty_key(store: Store, attempts: OperationAttempts) -> None:
    """Check R65."""
    with pytest.raises(InvalidRecordError, match="idempotency_key.* is empty"):
        attempts.upsert(M(""))
    assert raw_keys(store) == []


def test_upsert_refuses_a_key_that_is_no_utf8(store: Store, attempts: OperationAttempts) -> None:
    """Check R76: and so does every other call that takes one."""
    with pytest.raises(InvalidRecordError, match="UTF-8"):
        attempts.upsert(M("op-\udcff"))
    for use in (attempts.get, attempts.delete):
        with pytest.raises(ValueError, match="UTF-8"):
            use("op-\udcff")
    assert raw_keys(store) == []


@pytest.mark.parametrize(
    "attempt",
    [
        M("k" * 70_000),
        M("k" * 60_000),
        M("\0" * 30_000, **DONE),
        M("k", host="h" * 65_000, target="t" * 600),
        M("k", host="h" * 65_000, target="t" * 600, **DONE),
        M("k", host="h" * 65_000, target="t" * 600, cleanup_state=OWING, **DONE),
    ],
    ids=["own", "with index", "zeros in retention", "live", "retention", "owing"],
)
def test_upsert_refuses_what_makes_a_key_too_long(
    store: Store, attempts: OperationAttempts, attempt: OperationAttempt
) -> None:
    """A key has at most 64 KiB: whatever does not fit, in any index, is refused before a row is written."""
    try:
        attempts.upsert(attempt)
    except InvalidRecordError:
        assert raw_keys(store) == []
    else:
        assert len(max(raw_keys(store), key=len)) <= 64 * 1024
        attempts.delete(attempt.idempotency_key)
    with store.begin() as txn:
        try:
            attempts_of(txn).upsert(attempt)
        except InvalidRecordError:
            assert list(txn.family(FAMILY)) == []
        txn.rollback()


def test_upsert_refuses_what_is_no_attempt(attempts: OperationAttempts) -> None:
    with pytest.raises(TypeError, match="OperationAttempt expected, not str"):
        attempts.upsert("op-1")  # type: ignore[arg-type]


def test_delete_of_what_was_never_written_is_no_error(attempts: OperationAttempts) -> None:
    """Check R69."""
    attempts.delete("op-1")
    attempts.upsert(M("op-1"))
    attempts.delete("op-2")
    assert keys(attempts.iter()) == ["op-1"]


def test_the_table_offers_nothing_else() -> None:
    """Check R21: no generic writes, no generic iteration, no way to a row."""
    names = {name for name in dir(OperationAttempts) if not name.startswith("_")}
    assert names == {
        "upsert", "delete", "get", "iter", "iter_results",
        "live_attempt", "attempts_owing_cleanup", "expired_attempts",
        "sweep_expired", "prune", "check", "rebuild_indexes",
    }  # fmt: skip


# ---- iteration


def four(attempts: OperationAttempts) -> None:
    """Attempts op-1 to op-4 for instances 0 to 3; the last one owes cleanup."""
    for number in range(4):
        attempts.upsert(L(f"op-{number + 1}", HOST, PIG, number, cleanup_state=OWING if number == 3 else None))


def test_iteration_begins_where_it_is_told(attempts: OperationAttempts) -> None:
    """Check R62."""
    for number in range(3):
        attempts.upsert(L(f"op-{number + 1}", HOST, PIG, number))
    assert keys(attempts.iter(reverse=True)) == ["op-3", "op-2", "op-1"]
    assert keys(attempts.iter(seek="op-2")) == ["op-2", "op-3"]
    assert keys(attempts.iter(seek="op-2", reverse=True)) == ["op-2", "op-1"]
    assert keys(attempts.iter(seek="op-25")) == ["op-3"]
    assert keys(attempts.iter(seek="op-25", reverse=True)) == ["op-2", "op-1"]
    assert keys(attempts.iter(seek="")) == ["op-1", "op-2", "op-3"]
    assert keys(attempts.iter(seek="", reverse=True)) == []
    assert keys(attempts.iter(seek="z")) == []


def test_iteration_shows_attempts_only(store: Store, attempts: OperationAttempts) -> None:
    """Check R63: the format has 9 index rows; those of our own indexes are left out of the count."""
    four(attempts)
    assert len([key for key in format_keys(store.family(FAMILY)) if key >= b"\xf8"]) == 9
    assert keys(attempts.iter()) == ["op-1", "op-2", "op-3", "op-4"]


@pytest.mark.parametrize("seek", [b"\xff", b"\xf8", b"\xf9\x00", b"\xf4\xff\xff"], ids=bytes.hex)
def test_iteration_backwards_from_beyond_all_text_begins_at_the_last_attempt(
    attempts: OperationAttempts, seek: bytes
) -> None:
    """Check R64."""
    four(attempts)
    assert keys(attempts.iter(seek=seek, reverse=True)) == ["op-4", "op-3", "op-2", "op-1"]
    assert keys(attempts.iter(seek=seek)) == []


def test_the_greatest_text_is_still_a_record(attempts: OperationAttempts) -> None:
    """Section 6.2: no text begins with a byte above f4, so none can be taken for a row of an index."""
    greatest = "\U0010ffff" * 3
    attempts.upsert(M(greatest))
    assert keys(attempts.iter()) == keys(attempts.iter(reverse=True)) == [greatest]
    attempts.delete(greatest)


@given(
    st.sets(st.text(st.characters(codec="utf-8"), min_size=1, max_size=3), max_size=6),
    st.binary(max_size=3),
    st.booleans(),
)
def test_iteration_is_in_the_order_of_the_bytes(names: set[str], seek: bytes, reverse: bool) -> None:
    """Section 2.2: where a scan begins, for every start key, forward and backwards."""
    with checked_store() as store:
        attempts = attempts_of(store)
        for number, name in enumerate(names):
            attempts.upsert(L(name, HOST, PIG, number))
        ordered = sorted((name.encode() for name in names), reverse=reverse)
        assert [key.encode() for key in keys(attempts.iter(reverse=reverse))] == ordered
        within = [key for key in ordered if (key <= seek if reverse else key >= seek)]
        assert [key.encode() for key in keys(attempts.iter(seek=seek, reverse=reverse))] == within


def test_iteration_is_as_of_its_call(attempts: OperationAttempts) -> None:
    attempts.upsert(M("op-1"))
    found = attempts.iter()
    attempts.upsert(CORE("op-2"))
    attempts.delete("op-1")
    assert keys(found) == ["op-1"]


def test_hosts_and_targets_do_not_run_into_one_another(store: Store, attempts: OperationAttempts) -> None:
    """Check R74: of the format there are 8 rows."""
    one, other = L("op-1", "ab", "c", cleanup_state=OWING), L("op-2", "a", "bc", cleanup_state=OWING)
    assert tries(attempts, one, other) == [True, True]
    assert len(format_keys(store.family(FAMILY))) == 8
    assert attempts.live_attempt("ab", "c", 1) == one
    assert attempts.live_attempt("a", "bc", 1) == other
    assert attempts.attempts_owing_cleanup("c", "ab", 1) == [one]
    assert attempts.attempts_owing_cleanup("bc", "a", 1) == [other]
    assert list(attempts.iter()) == [one, other]


# ---- rows that cannot be read


def test_stray_row_under_the_empty_key(store: Store, attempts: OperationAttempts) -> None:
    """Check R66: whatever it holds, even what would be an attempt under another key."""
    attempts.upsert(M("op-1"))
    for value in (
        b"not a stored value",
        b"",
        OPERATION_ATTEMPTS.encode(M("op-1")),
        OPERATION_ATTEMPTS.encode(ONB("o")),
    ):
        overwrite(store, "", value)
        assert keys(attempts.iter()) == keys(attempts.iter(reverse=True)) == ["op-1"]
        with pytest.raises(DecodeError, match="empty"):
            attempts.get("")
        attempts.delete("")
        assert attempts.get("") is None
        assert attempts.check() == []
    assert attempts.live_attempt(HOST, "sensor", 1) == M("op-1")


def test_row_whose_key_is_no_text(store: Store, attempts: OperationAttempts) -> None:
    """Check R67: reported where it stands, and passed over by whoever asks for results."""
    attempts.upsert(M("op-1"))
    attempts.upsert(CORE("op.2"))
    store.family(FAMILY).put(b"op-\xff", OPERATION_ATTEMPTS.encode(ONB("o")))
    found = list(attempts.iter_results())
    assert [record and record.idempotency_key for record, _ in found] == ["op-1", None, "op.2"]
    error = found[1][1]
    assert error is not None and error.key == b"op-\xff"
    forward = attempts.iter()
    assert next(forward) == M("op-1")
    with pytest.raises(DecodeError, match="UTF-8"):
        next(forward)
    assert [problem.key for problem in attempts.check()] == [b"op-\xff"]
    store.family(FAMILY).delete(b"op-\xff")


def test_row_whose_value_is_none(store: Store, attempts: OperationAttempts) -> None:
    """Check R68: it is not read and not replaced, but can be deleted."""
    overwrite(store, "op-corrupt")
    with pytest.raises(DecodeError):
        attempts.get("op-corrupt")
    with pytest.raises(DecodeError):
        attempts.upsert(M("op-corrupt"))
    assert store.family(FAMILY).get(b"op-corrupt") == b"not a stored value"
    attempts.delete("op-corrupt")
    assert raw_keys(store) == []


SHAPES = {
    "live": L("op-1"),
    "live and owing": L("op-1", cleanup_state=OWING),
    "finished": T("op-1", 1000),
    "finished and owing": T("op-1", 1000, cleanup_state=OWING),
}


@pytest.mark.parametrize("attempt", SHAPES.values(), ids=SHAPES)
def test_delete_of_what_cannot_be_read_removes_its_index_rows(
    store: Store, attempts: OperationAttempts, attempt: OperationAttempt
) -> None:
    """Check R70: all of them, the ones that are not of the format too; then the slot is free."""
    attempts.upsert(attempt)
    overwrite(store, "op-1")
    attempts.delete("op-1")
    assert raw_keys(store) == []
    assert attempts.live_attempt(HOST, PIG, 1) is None
    assert tries(attempts, L("op-2")) == [True]


@pytest.mark.parametrize("attempt", SHAPES.values(), ids=SHAPES)
def test_delete_of_what_cannot_be_read_leaves_the_others(
    store: Store, attempts: OperationAttempts, attempt: OperationAttempt
) -> None:
    """Check R71: with keys that begin or end with that of the corrupt one, in its group and in others."""
    others = [
        *(T(key, 500 + number, cleanup_state=OWING) for number, key in enumerate(["op-11", "xop-1", "1", "op-"])),
        L("op-12", HOST, PIG, 2, cleanup_state=OWING),
        T("op-13", 2000, 9000, OTHER),
    ]
    with checked_store() as without:
        for other in others:
            attempts_of(without).upsert(other)
        expected = dict(without.family(FAMILY))
    for each in (attempt, *others):
        attempts.upsert(each)
    overwrite(store, "op-1")
    attempts.delete("op-1")
    assert dict(store.family(FAMILY)) == expected


def test_lookups_tell_of_what_they_cannot_read(store: Store, attempts: OperationAttempts) -> None:
    """Section 6.4: an attempt that is named and cannot be read is an error, not an omission."""
    attempts.upsert(L("op-1", cleanup_state=OWING))
    attempts.upsert(L("op-2", HOST, PIG, 2))
    overwrite(store, "op-1")
    for look in (
        lambda: attempts.live_attempt(HOST, PIG, 1),
        lambda: attempts.attempts_owing_cleanup(PIG, HOST, 1),
        lambda: attempts.expired_attempts(at(1_800_000_000)),
    ):
        with pytest.raises(DecodeError) as caught:
            look()
        assert caught.value.key == b"op-1"
    assert attempts.expired_attempts(at(0)) == []
    assert attempts.attempts_owing_cleanup(PIG, HOST, 2) == []
    attempts.delete("op-1")


def test_index_row_that_names_nothing_is_passed_over(store: Store, attempts: OperationAttempts) -> None:
    """Section 6.4: rows that have vanished are skipped; `check` tells of it, `rebuild_indexes` repairs it."""
    attempts.upsert(L("op-1", cleanup_state=OWING))
    store.family(FAMILY).delete(b"op-1")
    assert attempts.live_attempt(HOST, PIG, 1) is None
    assert attempts.attempts_owing_cleanup(PIG, HOST, 1) == []
    assert attempts.expired_attempts(at(1_800_000_000)) == []
    assert attempts.sweep_expired(at(1_800_000_000)) == 0
    assert len(attempts.check()) == 4
    with pytest.raises(SlotTakenError):  # a slot is held by what is written in it
        attempts.upsert(L("op-2"))
    assert attempts.rebuild_indexes() == 4
    assert tries(attempts, L("op-2")) == [True]


def test_slot_that_names_no_text_is_an_error(store: Store, attempts: OperationAttempts) -> None:
    """Section 6.4: what stands in a slot must be UTF-8; the empty text is, and no attempt has it as its key."""
    attempts.upsert(L("op-1"))
    slot = OPERATION_ATTEMPTS.index("live").prefix(HOST, PIG, 1)
    store.family(FAMILY).put(slot, b"op-\xff")
    with pytest.raises(DecodeError, match="UTF-8") as caught:
        attempts.live_attempt(HOST, PIG, 1)
    assert caught.value.key == b"op-\xff"
    store.family(FAMILY).put(slot, b"")
    assert attempts.live_attempt(HOST, PIG, 1) is None
    assert attempts.rebuild_indexes() == 1
    assert attempts.live_attempt(HOST, PIG, 1) == L("op-1")


# ---- sequences


INSTANCES = st.none() | st.integers(0, 1)
SMALL = st.builds(
    lambda key, host, instance, cleanup, outcome, started, expires: L(
        key, host, PIG, instance, cleanup_state=cleanup, outcome=outcome, started_at=at(started), expires_at=at(expires)
    ),
    st.sampled_from(["a", "bb", "b", "c\0c"]),
    st.sampled_from([HOST, OTHER]),
    INSTANCES,
    st.none() | st.sampled_from(CleanupState),
    st.none() | st.sampled_from(Outcome),
    st.integers(-2, 2),
    st.integers(-2, 2),
)


def owned(attempt: OperationAttempt) -> dict[bytes, bytes]:
    """The rows of the format that an attempt owns, written out as section 6.3 says and with nothing of the code."""

    def segment(text: str) -> bytes:
        return len(text.encode()).to_bytes(4, "big") + text.encode()

    instance = bytes(5) if attempt.instance is None else b"\x01" + attempt.instance.to_bytes(4, "big")
    key, host, target = attempt.idempotency_key.encode(), segment(attempt.host), segment(attempt.target)
    seconds, micros = divmod(round(attempt.expires_at.timestamp() * 1_000_000), 1_000_000)
    stamp = (seconds + 2**63).to_bytes(8, "big") + (micros * 1000).to_bytes(4, "big")
    rows = {b"\xfa" + stamp + segment(attempt.idempotency_key): key}
    if attempt.outcome is None:
        rows[b"\xf8" + host + target + instance] = key
    if attempt.cleanup_state is not None:
        rows[b"\xf9" + target + host + instance + segment(attempt.idempotency_key)] = key
    return rows


@given(st.lists(SMALL | st.sampled_from(["a", "bb", "b", "c\0c"]), max_size=12))
def test_index_rows_are_always_what_the_attempts_own(steps: list[OperationAttempt | str]) -> None:
    """Check R75: after every one of any upserts and deletes; see also ``test_operation_model``."""
    with checked_store() as store:
        attempts = attempts_of(store)
        for step in steps:
            if isinstance(step, str):
                attempts.delete(step)
            else:
                tries(attempts, step)
            expected: dict[bytes, bytes] = {}
            for attempt in attempts.iter():
                expected |= owned(attempt)
            assert {key: value for key, value in store.family(FAMILY).items() if b"\xf8" <= key < b"\xfb"} == expected
            assert attempts.check() == []


# ---- single flight


def test_slot_is_taken_until_its_holder_lets_go(attempts: OperationAttempts) -> None:
    """Check R77: and driving the holder on is no conflict."""
    attempts.upsert(L("op-1"))
    with pytest.raises(SlotTakenError, match=f"host '{HOST}', target '{PIG}', instance 1") as caught:
        attempts.upsert(L("op-2"))
    assert (caught.value.key, caught.value.holder) == (b"op-2", b"op-1")
    assert attempts.get("op-2") is None
    attempts.upsert(L("op-1", phase=Phase.DISPATCHED))
    assert list(attempts.iter()) == [L("op-1", phase=Phase.DISPATCHED)]


def test_finishing_frees_the_slot(attempts: OperationAttempts) -> None:
    """Check R78."""
    attempts.upsert(L("op-1"))
    attempts.upsert(L("op-1", **DONE))
    assert attempts.live_attempt(HOST, PIG, 1) is None
    attempts.upsert(L("op-2"))
    assert attempts.live_attempt(HOST, PIG, 1) == L("op-2")
    assert keys(attempts.iter()) == ["op-1", "op-2"]


@pytest.mark.parametrize("bound", ["store", "transaction"])
def test_one_of_four_threads_wins(bound: str) -> None:
    """Check R79: eight times, on fresh tables; also with a transaction of their own around it."""
    for _ in range(8):
        with checked_store() as store:
            accepted: list[str] = []
            start = threading.Barrier(4)

            def race(
                key: str, store: Store = store, accepted: list[str] = accepted, start: threading.Barrier = start
            ) -> None:
                start.wait()
                try:
                    if bound == "store":
                        attempts_of(store).upsert(L(key))
                    else:
                        store.transact(lambda txn: attempts_of(txn).upsert(L(key)))
                except SlotTakenError:
                    return
                accepted.append(key)

            threads = [threading.Thread(target=race, args=(f"op-{number}",)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(accepted) == 1
            assert keys(attempts_of(store).iter()) == accepted


def test_every_instance_has_a_slot_and_none_is_one(attempts: OperationAttempts) -> None:
    """Check R80."""
    live = [L("op-1"), L("op-2", HOST, PIG, 2), L("op-3", HOST, PIG, None)]
    assert tries(attempts, *live) == [True, True, True]
    assert [attempts.live_attempt(HOST, PIG, instance) for instance in (1, 2, None)] == live
    assert attempts.live_attempt(HOST, PIG, 3) is None


def test_every_host_has_a_slot(attempts: OperationAttempts) -> None:
    """Check R81."""
    assert tries(attempts, L("op-1"), L("op-2", OTHER)) == [True, True]


def test_moving_to_another_triple_frees_the_old_slot(attempts: OperationAttempts) -> None:
    """Check R82."""
    moved = L("op-1", HOST, PIG, 2)
    assert tries(attempts, L("op-1"), moved) == [True, True]
    assert attempts.live_attempt(HOST, PIG, 1) is None
    assert attempts.live_attempt(HOST, PIG, 2) == moved
    assert tries(attempts, L("op-2")) == [True]


def test_moving_into_a_taken_slot_changes_nothing(store: Store, attempts: OperationAttempts) -> None:
    """Check R83."""
    assert tries(attempts, L("op-1"), L("op-2", HOST, PIG, 2)) == [True, True]
    before = dict(store.family(FAMILY))
    assert tries(attempts, L("op-1", HOST, PIG, 2)) == [False]
    assert dict(store.family(FAMILY)) == before
    assert attempts.live_attempt(HOST, PIG, 1) == L("op-1")


def test_finished_attempt_may_live_again_if_the_slot_is_free(attempts: OperationAttempts) -> None:
    """Check R84: and not while another one holds it."""
    assert tries(attempts, L("op-1", **DONE), L("op-1"), L("op-1", **DONE)) == [True, True, True]
    assert tries(attempts, L("op-2"), L("op-1")) == [True, False]
    attempts.delete("op-2")
    assert tries(attempts, L("op-1")) == [True]
    assert attempts.live_attempt(HOST, PIG, 1) == L("op-1")


# ---- in a transaction and in a view


def test_bound_to_a_transaction_all_is_part_of_it(store: Store) -> None:
    """Nothing is committed by a call; what is written in it is seen in it."""
    with store.begin() as txn:
        attempts = attempts_of(txn)
        attempts.upsert(L("op-1"))
        with pytest.raises(SlotTakenError):
            attempts.upsert(L("op-2"))
        attempts.upsert(L("op-3", HOST, PIG, 3, expires_at=at(10)))
        assert attempts.sweep_expired(at(10)) == 1
        assert keys(attempts.iter()) == ["op-1", "op-3"]
        assert attempts_of(store).get("op-1") is None
        assert attempts.check() == []
    assert keys(attempts_of(store).iter()) == ["op-1", "op-3"]
    with store.begin() as txn:
        attempts_of(txn).delete("op-1")
        txn.rollback()
    assert keys(attempts_of(store).iter()) == ["op-1", "op-3"]


def test_bound_to_a_view_it_reads_and_does_not_write(store: Store) -> None:
    attempts_of(store).upsert(L("op-1", cleanup_state=OWING))
    with store.view() as view:
        attempts = attempts_of(view)
        attempts_of(store).delete("op-1")
        assert attempts.get("op-1") == attempts.live_attempt(HOST, PIG, 1) == L("op-1", cleanup_state=OWING)
        assert keys(attempts.attempts_owing_cleanup(PIG, HOST, 1)) == ["op-1"]
        assert keys(attempts.expired_attempts(at(1_800_000_000))) == ["op-1"]
        assert attempts.check() == []
        for write in (
            lambda: attempts.upsert(M("m")),
            lambda: attempts.delete("m"),
            lambda: attempts.sweep_expired(at(0)),
        ):
            with pytest.raises(TypeError, match="bound to a view"):
                write()


def test_a_store_without_the_family_is_refused() -> None:
    with pystate.memory() as store, pytest.raises(pystate.FamilyNotFoundError):
        attempts_of(store)
