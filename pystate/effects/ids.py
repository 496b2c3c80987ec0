"""Which effect is meant: ids, names, keys, and the idempotency keys derived from them.

All of these are texts (subclasses of `str`), checked when they are made: they print, sort, hash and compare as their
text does. They are immutable, and any thread may use them.

An `EffectKey` names one logical effect for ever; an `EffectId` names one record of it. The two derivations of
idempotency keys are frozen: they depend on the name and the key alone, so they outlive the loss of a record.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from uuid import UUID, uuid5

import msgspec

from pystate.errors import (
    ControlCharacterError,
    EmptyIdentityError,
    IdentityTooLongError,
    InvalidEffectIdError,
)

__all__ = [
    "EFFECT_NAME_BYTES_MAX",
    "LOGICAL_KEY_BYTES_MAX",
    "EffectId",
    "EffectKey",
    "EffectName",
    "IdempotencyKey",
    "LogicalKey",
    "WorkerId",
]

EFFECT_NAME_BYTES_MAX = 200
"""The most bytes of an effect name in UTF-8."""
LOGICAL_KEY_BYTES_MAX = 512
"""The most bytes of a logical key in UTF-8."""

_NAMESPACE = UUID("5b2f9c1e-7a4d-4e0b-9f3a-6c8d1e2f4a70")
_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff]")  # category Cc, and what UTF-8 cannot hold


def _checked(text: str, what: str, size_max: int) -> str:
    """The text, if it is allowed as a name or a key."""
    if type(text) is str and 0 < len(text) <= size_max and text.isascii() and text.isprintable():
        return text  # nearly all of them, quickly: reading a record makes two
    if not isinstance(text, str):
        raise TypeError(f"{what}: expected a str, not {type(text).__name__}")
    if not text:
        raise EmptyIdentityError(what)
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > size_max:
        raise IdentityTooLongError(what, size, size_max)
    if _CONTROL.search(text):
        raise ControlCharacterError(what)
    return text


def _hyphenated(value: str | UUID, what: str) -> str:
    text = str(value) if isinstance(value, UUID) else value
    if not isinstance(text, str):
        raise TypeError(f"{what}: expected a str or a UUID, not {type(text).__name__}")
    lower = text.lower()
    if not _UUID.fullmatch(lower):
        raise InvalidEffectIdError(what, text)
    return lower


def _text_of(data: bytes) -> str:
    digits = data.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


class _Clockwork:
    """Makes the numbers of UUIDs of version 7 that grow strictly in this process, whatever the clock does.

    A number is 48 bits of Unix milliseconds above 74 random bits. Within a millisecond, and while the clock stands
    behind the newest number, the next one is a random step above it; a carry out of the random bits goes into the
    milliseconds, which only makes the number a little younger than the clock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._last = 0
        # A generator of its own: `random.seed` of a program must not make two processes draw the same ids.
        self._random = random.Random()

    def next(self) -> bytes:
        """The 16 bytes of the next UUID."""
        with self._lock:
            fresh = (time.time_ns() // 1_000_000) << 74 | self._random.getrandbits(74)
            if fresh <= self._last:
                fresh = self._last + 1 + self._random.getrandbits(32)
            self._last = fresh
        low = fresh & (2**62 - 1)
        return ((fresh >> 74) << 80 | 7 << 76 | (fresh >> 62 & 0xFFF) << 64 | 2 << 62 | low).to_bytes(16, "big")

    def after_fork(self) -> None:
        """In a forked child: draw other numbers than the parent, all above those made before the fork."""
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self._random = random.Random()
        self._last = ((self._last >> 74) + 1) << 74 | self._random.getrandbits(74)


_clockwork = _Clockwork()
if hasattr(os, "register_at_fork"):  # not everywhere
    os.register_at_fork(after_in_child=_clockwork.after_fork)


class EffectId(str):
    """The id of one effect record: a UUID, of version 7 when made here, as lower-case hyphenated text.

    Ids made by `new` in one process grow strictly: across threads, within a millisecond, in a forked child, and when
    the clock goes back. Their order is the order of their bytes and of their text.

    Arguments:
        value: a hyphenated UUID as text, upper or lower case, or a `uuid.UUID` of any version.

    Raises:
        InvalidEffectIdError: not a hyphenated UUID.
        TypeError: neither a text nor a UUID.
    """

    __slots__ = ()

    def __new__(cls, value: str | UUID) -> EffectId:
        return str.__new__(cls, _hyphenated(value, "effect id"))

    def __repr__(self) -> str:
        return f"EffectId({str(self)!r})"

    @classmethod
    def new(cls) -> EffectId:
        """A fresh id, above every one that this process has made. Reads the system clock."""
        return str.__new__(cls, _text_of(_clockwork.next()))

    @classmethod
    def from_bytes(cls, data: bytes) -> EffectId:
        """The id of these 16 bytes.

        Raises:
            InvalidEffectIdError: not 16 of them.
            TypeError: not `bytes`.
        """
        if not isinstance(data, bytes):
            raise TypeError(f"effect id: expected bytes, not {type(data).__name__}")
        if len(data) != 16:
            raise InvalidEffectIdError("effect id", data.hex())
        return str.__new__(cls, _text_of(data))

    def to_bytes(self) -> bytes:
        """The 16 bytes of the id; they sort as the ids do."""
        return bytes.fromhex(self.replace("-", ""))

    @property
    def uuid(self) -> UUID:
        """The id as a `uuid.UUID`."""
        return UUID(self)


class EffectName(str):
    """What kind of thing is done, such as ``payment.charge``: 1 to 200 bytes of UTF-8, no control characters.

    Raises:
        EmptyIdentityError, IdentityTooLongError, ControlCharacterError: the first of these that holds.
        TypeError: not a text.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> EffectName:
        return str.__new__(cls, _checked(text, "effect name", EFFECT_NAME_BYTES_MAX))

    def __repr__(self) -> str:
        return f"EffectName({str(self)!r})"


class LogicalKey(str):
    """Which one of its kind, such as ``order_5824``: 1 to 512 bytes of UTF-8, no control characters.

    Raises:
        EmptyIdentityError, IdentityTooLongError, ControlCharacterError: the first of these that holds.
        TypeError: not a text.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> LogicalKey:
        return str.__new__(cls, _checked(text, "logical key", LOGICAL_KEY_BYTES_MAX))

    def __repr__(self) -> str:
        return f"LogicalKey({str(self)!r})"


class IdempotencyKey(str):
    """A UUID of version 5 that a remote can recognise a repeated request by, as lower-case hyphenated text.

    Derived from an `EffectKey`, never stored. The constructor takes what `EffectId` takes, and raises what it raises.
    """

    __slots__ = ()

    def __new__(cls, value: str | UUID) -> IdempotencyKey:
        return str.__new__(cls, _hyphenated(value, "idempotency key"))

    def __repr__(self) -> str:
        return f"IdempotencyKey({str(self)!r})"

    @property
    def uuid(self) -> UUID:
        """The key as a `uuid.UUID`."""
        return UUID(self)


class WorkerId(str):
    """Who holds a lease. Any text will do, but it must be unique among the workers that share a store."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"WorkerId({str(self)!r})"

    @classmethod
    def random(cls) -> WorkerId:
        """A fresh one: the text of a UUID of version 7. Reads the system clock."""
        return cls(_text_of(_clockwork.next()))


class EffectKey(msgspec.Struct, frozen=True, order=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One logical effect: its name and its key, unique in a store. Ordered by name, then by key.

    Plain texts in place of `EffectName` and `LogicalKey` are checked and taken; both raise what these raise.

    Attributes:
        name: what kind of thing is done.
        key: which one of its kind.
    """

    name: EffectName
    key: LogicalKey

    def __post_init__(self) -> None:
        if type(self.name) is not EffectName:
            msgspec.structs.force_setattr(self, "name", EffectName(self.name))
        if type(self.key) is not LogicalKey:
            msgspec.structs.force_setattr(self, "key", LogicalKey(self.key))

    def __str__(self) -> str:
        return f"{self.name}:{self.key}"

    def idempotency_key(self) -> IdempotencyKey:
        """The key that goes with every attempt to do it, in this and any later life of its record."""
        return IdempotencyKey(uuid5(_NAMESPACE, self._material()))

    def compensation_key(self) -> IdempotencyKey:
        """The key that goes with every attempt to undo it."""
        return IdempotencyKey(uuid5(_NAMESPACE, f"compensate:{self._material()}"))

    def _material(self) -> str:
        # The length keeps ("a:b", "c") apart from ("a", "b:c").
        return f"{len(self.name.encode())}:{self.name}:{self.key}"
