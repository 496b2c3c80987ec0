"""Names, keys and ids: what is allowed, what is derived, and that ids grow."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.effects import ids as module
from pystate.effects.ids import (
    EFFECT_NAME_BYTES_MAX,
    LOGICAL_KEY_BYTES_MAX,
    EffectId,
    EffectKey,
    EffectName,
    IdempotencyKey,
    LogicalKey,
    WorkerId,
)
from pystate.effects.redaction import from_json
from pystate.errors import (
    ControlCharacterError,
    EmptyIdentityError,
    IdentityError,
    IdentityTooLongError,
    InvalidEffectIdError,
    MalformedError,
)

ROOT = Path(__file__).resolve().parent.parent.parent
NAMES: list[tuple[Any, str, int]] = [
    (EffectName, "effect name", EFFECT_NAME_BYTES_MAX),
    (LogicalKey, "logical key", LOGICAL_KEY_BYTES_MAX),
]
both = pytest.mark.parametrize(("kind", "what", "size_max"), NAMES, ids=["name", "key"])


def key(name: str, logical: str) -> EffectKey:
    return EffectKey(EffectName(name), LogicalKey(logical))


# Idempotency keys


def test_the_idempotency_key_is_the_pinned_one() -> None:
    """Check E1: the derivation is frozen."""
    assert key("payment.charge", "order_5824").idempotency_key() == "ab211c89-566b-5012-bd33-3a7f81351a08"


def test_the_compensation_key_is_the_pinned_one() -> None:
    """Check E2: another one than that of the effect."""
    assert key("payment.charge", "order_5824").compensation_key() == "46877ef3-8997-5e94-a1ac-4be0bd2782b4"


def test_the_length_keeps_ambiguous_pairs_apart() -> None:
    """Check E3: ``a:b`` with ``c``, and ``a`` with ``b:c``, read the same and are not."""
    first, second = key("a:b", "c"), key("a", "b:c")
    assert str(first) == str(second) == "a:b:c"
    assert first.idempotency_key() == "06b9d910-1f14-58ff-b3dc-f6f9d00e991f"
    assert second.idempotency_key() == "e8a02912-7d6f-55d0-aa30-789d0c295c1f"
    assert first.compensation_key() == "1cb2ec31-6e7e-5b3d-85fa-dc35c6c66ce2"
    assert second.compensation_key() == "1a1c2172-0355-58d4-a40e-83971db477fe"


def test_the_length_counts_bytes() -> None:
    """Check E4: two bytes of one character."""
    assert key("é", "ü").idempotency_key() == "d3f83a05-ee77-58da-a1bf-af339f83d26a"
    assert key("é", "ü").compensation_key() == "733d8446-9ae8-55bb-854b-a639ca9979ad"


def test_the_keys_of_order_1() -> None:
    """The third line of the table of keys."""
    assert key("payment.charge", "order_1").idempotency_key() == "807d4f2c-a43a-5b43-a3c1-be2d970f393f"
    assert key("payment.charge", "order_1").compensation_key() == "dafa4887-063c-5c02-a917-b6bf2b01608a"


def test_an_idempotency_key_is_a_text_and_a_uuid() -> None:
    derived = key("payment.charge", "order_1").idempotency_key()
    assert type(derived) is IdempotencyKey
    assert derived.uuid.version == 5
    assert IdempotencyKey(derived.uuid) == derived
    assert repr(derived) == f"IdempotencyKey('{derived}')"


texts = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=40)


@given(texts, texts, texts, texts)
def test_different_effects_have_different_keys(name: str, logical: str, other_name: str, other_logical: str) -> None:
    first, second = key(name, logical), key(other_name, other_logical)
    derived = {first.idempotency_key(), first.compensation_key(), second.idempotency_key(), second.compensation_key()}
    assert len(derived) == (2 if first == second else 4)


# Names and keys


@both
def test_an_empty_one_is_refused(kind: Any, what: str, size_max: int) -> None:
    """Check E5: and the error says which."""
    with pytest.raises(EmptyIdentityError) as caught:
        kind("")
    assert caught.value.what == what
    assert {IdentityError, ValueError} < set(type(caught.value).__mro__)


@both
def test_the_most_bytes_are_allowed_and_one_more_is_not(kind: Any, what: str, size_max: int) -> None:
    """Check E6: the limit is inclusive."""
    assert kind("x" * size_max) == "x" * size_max
    with pytest.raises(IdentityTooLongError) as caught:
        kind("x" * (size_max + 1))
    assert (caught.value.what, caught.value.len, caught.value.max) == (what, size_max + 1, size_max)


def test_the_limits_are_200_and_512() -> None:
    """Check E6 and E7: as they are written down."""
    assert (EFFECT_NAME_BYTES_MAX, LOGICAL_KEY_BYTES_MAX) == (200, 512)


@both
def test_the_limit_is_in_bytes(kind: Any, what: str, size_max: int) -> None:
    """Check E7: a character of two bytes counts twice."""
    assert kind("é" * (size_max // 2)) == "é" * (size_max // 2)
    with pytest.raises(IdentityTooLongError) as caught:
        kind("é" * (size_max // 2 + 1))
    assert (caught.value.what, caught.value.len, caught.value.max) == (what, size_max + 2, size_max)


@both
@pytest.mark.parametrize(
    "character", ["\n", "\0", "\x1f", "\x7f", "\x80", "\x85", "\x9f", "\ud800", "\udfff"], ids=ascii
)
def test_a_control_character_is_refused(kind: Any, what: str, size_max: int, character: str) -> None:
    """Check E8: all of category Cc; and a lone surrogate, which UTF-8 cannot hold."""
    for text in (character, f"a{character}b", f"é{character}"):
        with pytest.raises(ControlCharacterError) as caught:
            kind(text)
        assert caught.value.what == what


@both
@pytest.mark.parametrize(
    "text", [" ", "\u200b", "a:b", " a ", "\xa0", "🙂", "E\u0301", "\xad", "\ue000", "\u2028"], ids=ascii
)
def test_nothing_else_is_refused_or_changed(kind: Any, what: str, size_max: int, text: str) -> None:
    """Check E8: blanks, format characters, private ones; no trimming, no folding, no normalisation."""
    assert kind(text) == text


@given(st.characters())
def test_exactly_category_cc_and_surrogates_are_refused(character: str) -> None:
    """Check E8: against the categories of Unicode."""
    import unicodedata

    if unicodedata.category(character) in ("Cc", "Cs"):
        with pytest.raises(ControlCharacterError):
            EffectName(character)
    else:
        assert EffectName(character) == character


def test_too_long_is_said_before_control_character() -> None:
    """Check E9: the first failure wins."""
    with pytest.raises(IdentityTooLongError):
        EffectName("x" * 200 + "\n")
    with pytest.raises(IdentityTooLongError):
        EffectName("\udc80" * 100)  # three bytes each, if they were any


def test_a_name_from_json_is_checked() -> None:
    """Check E10: the same rules."""
    with pytest.raises(MalformedError, match="empty"):
        from_json("", EffectName)
    name = from_json("payment.charge", EffectName)
    assert name == "payment.charge" and type(name) is EffectName
    with pytest.raises(MalformedError):
        from_json(7, EffectName)
    assert type(from_json("order_1", LogicalKey)) is LogicalKey


@pytest.mark.parametrize("value", [None, 7, b"payment"], ids=repr)
def test_what_is_no_text_is_refused(value: Any) -> None:
    for kind in (EffectName, LogicalKey, EffectId, IdempotencyKey):
        with pytest.raises(TypeError, match="expected a str"):
            kind(value)


def test_names_and_keys_show_what_they_are() -> None:
    assert (repr(EffectName("a")), str(EffectName("a")), f"{EffectName('a')}") == ("EffectName('a')", "a", "a")
    assert (repr(LogicalKey("b")), str(LogicalKey("b"))) == ("LogicalKey('b')", "b")


# Effect keys


def test_effect_keys_are_ordered_by_name_and_then_key() -> None:
    ordered = [key("a", "z"), key("a!", "a"), key("b", "a"), key("b", "b"), key("é", "a")]
    assert sorted(reversed(ordered)) == ordered
    assert len({*ordered, key("a", "z")}) == len(ordered)


def test_an_effect_key_of_plain_texts_is_checked() -> None:
    """So that a program without a type checker cannot store a wrong one."""
    made: Any = EffectKey("payment.charge", "order_1")  # type: ignore[arg-type]
    assert made == key("payment.charge", "order_1")
    assert (type(made.name), type(made.key)) == (EffectName, LogicalKey)
    for wrong in (("", "k"), ("n", ""), ("n", "a\nb")):
        with pytest.raises(IdentityError):
            EffectKey(*wrong)  # type: ignore[arg-type]
    with pytest.raises(IdentityTooLongError):
        EffectKey(LogicalKey("x" * 201), LogicalKey("k"))  # type: ignore[arg-type]


def test_an_effect_key_is_frozen() -> None:
    with pytest.raises(AttributeError):
        key("a", "b").name = EffectName("c")  # type: ignore[misc]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_all_can_be_pickled_and_copied(protocol: int) -> None:
    made = key("payment.charge", "order_1")
    for value in (EffectId.new(), made, made.name, made.key, made.idempotency_key(), WorkerId.random()):
        for other in (pickle.loads(pickle.dumps(value, protocol)), copy.copy(value), copy.deepcopy(value)):
            assert other == value and type(other) is type(value)


# Ids


def test_ids_are_uuids_of_version_7_in_their_text_form() -> None:
    import time

    before = time.time_ns() // 1_000_000
    made = EffectId.new()
    assert (made.uuid.version, made.uuid.variant) == (7, uuid.RFC_4122)
    assert str(made) == str(made.uuid)
    assert before <= made.uuid.int >> 80 <= time.time_ns() // 1_000_000 + 1000
    assert made.to_bytes() == made.uuid.bytes
    assert repr(made) == f"EffectId('{made}')"


def test_an_id_can_be_made_of_a_uuid_a_text_or_bytes() -> None:
    given_uuid = uuid.uuid4()
    made = EffectId(given_uuid)
    assert made == str(given_uuid) and made.uuid == given_uuid
    assert EffectId(str(given_uuid).upper()) == EffectId(made) == EffectId.from_bytes(given_uuid.bytes) == made


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "0" * 32,
        "{018bcfe5-6800-7000-8000-000000000000}",
        "018bcfe5-6800-7000-8000-00000000000g",
        "018bcfe5-6800-7000-8000-000000000000\n",
    ],
)
def test_another_text_is_no_id(text: str) -> None:
    with pytest.raises(InvalidEffectIdError) as caught:
        EffectId(text)
    assert (caught.value.what, caught.value.text) == ("effect id", text)
    with pytest.raises(InvalidEffectIdError):
        IdempotencyKey(text)


def test_other_bytes_are_no_id() -> None:
    for data in (b"", b"0" * 15, b"0" * 17):
        with pytest.raises(InvalidEffectIdError):
            EffectId.from_bytes(data)
    with pytest.raises(TypeError, match="expected bytes"):
        EffectId.from_bytes("0" * 16)  # type: ignore[arg-type]


def test_ids_of_many_threads_differ_and_grow_in_each() -> None:
    """Check E11: 4 threads of 10,000 each; as ids, as text and as bytes."""
    made: list[list[EffectId]] = [[] for _ in range(4)]
    threads = [
        threading.Thread(target=lambda own=own: own.extend(EffectId.new() for _ in range(10_000))) for own in made
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set().union(*made)) == 40_000
    for own in made:
        assert all(
            a < b and str(a) < str(b) and a.to_bytes() < b.to_bytes() for a, b in zip(own, own[1:], strict=False)
        )


class Clock:
    """A stand-in for the module `time`."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def time_ns(self) -> int:
        return self.now * 1_000_000


@given(st.lists(st.sampled_from([0, 0, 0, 1, -1, 5000, -5000]), max_size=60))
def test_ids_grow_whatever_the_clock_does(steps: list[int]) -> None:
    """Within a millisecond, and when the clock goes back."""
    clock = Clock()
    clockwork = module._Clockwork()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", clock)
        made = [clockwork.next()]
        for step in steps:
            clock.now += step
            made.append(clockwork.next())
    assert all(a < b for a, b in zip(made, made[1:], strict=False))
    assert all(uuid.UUID(bytes=data).version == 7 and uuid.UUID(bytes=data).variant == uuid.RFC_4122 for data in made)


def test_a_full_millisecond_runs_over_into_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The carry goes into the time, and does not wrap around."""
    monkeypatch.setattr(module, "time", Clock())
    clockwork = module._Clockwork()
    before = clockwork.next()
    clockwork._last |= 2**74 - 1
    after = clockwork.next()
    assert after > before
    assert int.from_bytes(after, "big") >> 80 == (int.from_bytes(before, "big") >> 80) + 1


def test_a_seed_of_the_program_does_not_repeat_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes with the same seed, in the same millisecond."""
    import random

    monkeypatch.setattr(module, "time", Clock())
    state = random.getstate()
    try:
        made = []
        for _ in range(2):
            random.seed(1)
            made.append(module._Clockwork().next())
    finally:
        random.setstate(state)
    assert made[0] != made[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_ids_of_a_forked_child_grow_on_and_are_its_own() -> None:
    """Even within one millisecond, and when the fork happens while another thread is making one."""
    program = textwrap.dedent(
        """
        import os, sys
        from pystate.effects import ids
        from pystate.effects.ids import EffectId
        class Clock:
            def time_ns(self):
                return 1_700_000_000_000_000_000
        ids.time = Clock()
        before = [EffectId.new() for _ in range(100)]
        ids._clockwork._lock.acquire()  # as another thread would hold it
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            own = [EffectId.new() for _ in range(1000)]
            os.write(writing, "".join(own).encode())
            os._exit(0)
        ids._clockwork._lock.release()
        os.close(writing)
        after = [EffectId.new() for _ in range(1000)]
        data = b"".join(iter(lambda: os.read(reading, 65536), b"")).decode()
        os.waitpid(child, 0)
        theirs = [data[at:at + 36] for at in range(0, len(data), 36)]
        assert len(theirs) == 1000, len(theirs)
        assert before == sorted(before) and max(before) < min(theirs) and theirs == sorted(theirs)
        assert max(before) < min(after) and after == sorted(after)
        assert len({*before, *theirs, *after}) == 2100
        """
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)


def test_worker_ids_are_any_text_and_random_ones_differ() -> None:
    assert WorkerId("") == "" and WorkerId("a\nb") == "a\nb"
    first, second = WorkerId.random(), WorkerId.random()
    assert first != second and uuid.UUID(first).version == 7
    assert repr(WorkerId("a")) == "WorkerId('a')"


def test_a_stored_key_is_checked_when_it_is_read() -> None:
    read = msgspec.msgpack.Decoder(EffectKey, dec_hook=lambda kind, value: kind(value)).decode
    assert read(msgspec.msgpack.encode(["a", "b"])) == key("a", "b")
    with pytest.raises(msgspec.ValidationError):
        read(msgspec.msgpack.encode(["a", ""]))
