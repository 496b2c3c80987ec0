"""The limits of a store, and the checks that apply them before anything is written.

Promise: whatever passes these functions can be encoded into a frame and read back byte for byte; whatever does not is
refused with ``TypeError`` or ``ValueError`` while the store is still untouched. Everything above the file formats may
call this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

__all__ = [
    "COMMIT_BYTES_MAX",
    "FAMILIES_MAX",
    "FAMILY_NAME_BYTES_MAX",
    "HISTORY_BYTES",
    "KEY_BYTES_MAX",
    "METADATA_BYTES_MAX",
    "METADATA_KEY_BYTES_MAX",
    "SNAPSHOT_LOG_BYTES",
    "VALUE_BYTES_MAX",
    "Buffer",
    "as_key",
    "as_value",
    "check_family_name",
    "check_metadata",
    "check_number",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

KEY_BYTES_MAX = 64 * 1024
"""The longest key, in bytes."""
VALUE_BYTES_MAX = 256 * 1024 * 1024
"""The longest value, in bytes."""
COMMIT_BYTES_MAX = 1024 * 1024 * 1024
"""The largest commit, in bytes of its encoded frame payload."""
FAMILY_NAME_BYTES_MAX = 255
"""The longest family name, in bytes of UTF-8."""
METADATA_KEY_BYTES_MAX = 255
"""The longest key of the metadata, in bytes of UTF-8."""
METADATA_BYTES_MAX = 64 * 1024
"""The most metadata of a store, keys and values together, in bytes of UTF-8."""
FAMILIES_MAX = 65_535
"""The most families a store may have at once."""
SNAPSHOT_LOG_BYTES = 16 * 1024 * 1024
"""Default of ``snapshot_log_bytes``: a log smaller than this never causes a snapshot."""
HISTORY_BYTES = 256 * 1024 * 1024
"""Default of ``history_bytes``: how much overwritten data is kept for open views and transactions."""


def as_key(key: object) -> bytes:
    """Return `key` as ``bytes``, copied unless it already is ``bytes``.

    Raises:
        TypeError: it is not ``bytes``, ``bytearray`` or ``memoryview``.
        ValueError: it is longer than `KEY_BYTES_MAX`.
    """
    return _as_bytes(key, "key", KEY_BYTES_MAX)


def as_value(value: object) -> bytes:
    """Return `value` as ``bytes``, copied unless it already is ``bytes``.

    Raises:
        TypeError: it is not ``bytes``, ``bytearray`` or ``memoryview``.
        ValueError: it is longer than `VALUE_BYTES_MAX`.
    """
    return _as_bytes(value, "value", VALUE_BYTES_MAX)


def _as_bytes(data: object, what: str, limit: int) -> bytes:
    if type(data) is bytes and len(data) <= limit:
        return data
    if not isinstance(data, (bytes, bytearray, memoryview)):
        hint = "; encode it first, for example with .encode()" if isinstance(data, str) else ""
        raise TypeError(f"a {what} is bytes, bytearray or memoryview, not {type(data).__name__}{hint}")
    size = data.nbytes if isinstance(data, memoryview) else len(data)
    if size > limit:
        raise ValueError(f"this {what} has {size} bytes; the limit is {limit}")
    return bytes(data)


def check_number(what: str, number: object, kind: type[int] | type[float], *, at_least: int = 0) -> None:
    """Refuse a numeric argument that cannot be.

    Arguments:
        what: its name, for the error.
        kind: ``int``, or ``float`` for either.

    Raises:
        TypeError: not a number of that kind. ValueError: less than `at_least`, or not a number at all (NaN).
    """
    if isinstance(number, bool) or not isinstance(number, (int, kind)):
        raise TypeError(f"{what} is a number ({kind.__name__}), not {type(number).__name__}")
    if not number >= at_least:
        raise ValueError(f"{what} is {number!r}; it must be at least {at_least}")


def check_family_name(name: object) -> str:
    """Return `name` if it may name a family.

    Raises:
        TypeError: it is not a ``str``.
        ValueError: it is empty, longer than `FAMILY_NAME_BYTES_MAX`, holds a control character, or has no UTF-8 form.
    """
    return _check_name(name, "family name", FAMILY_NAME_BYTES_MAX)


def check_metadata(metadata: object) -> dict[str, str]:
    """Return a copy of `metadata` if it may be the metadata of a store; None stands for none.

    Raises:
        TypeError: it is not a mapping from ``str`` to ``str``.
        ValueError: a key is empty, longer than `METADATA_KEY_BYTES_MAX` or holds a control character; something has
            no UTF-8 form; or all together is larger than `METADATA_BYTES_MAX`.
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata is a mapping from str to str, not {type(metadata).__name__}")
    checked: dict[str, str] = {}
    size = 0
    for key, value in metadata.items():
        key = _check_name(key, "metadata key", METADATA_KEY_BYTES_MAX)
        if not isinstance(value, str):
            raise TypeError(f"the metadata value of {key!r} is a str, not {type(value).__name__}")
        size += len(key.encode()) + _utf8_size(f"metadata value of {key!r}", value)
        checked[key] = str(value)
    if size > METADATA_BYTES_MAX:
        raise ValueError(f"this metadata has {size} bytes of UTF-8; the limit is {METADATA_BYTES_MAX}")
    return checked


def _check_name(name: object, what: str, limit: int) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a {what} is a str, not {type(name).__name__}")
    size = _utf8_size(what, name)
    if not 0 < size <= limit:
        raise ValueError(f"a {what} has 1 to {limit} bytes of UTF-8; {name[:40]!r} has {size}")
    if any(ord(character) < 32 or 127 <= ord(character) < 160 for character in name):
        raise ValueError(f"{what} {name!r} holds a control character; use printable text")
    return str(name)


def _utf8_size(what: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} {text!r} cannot be encoded as UTF-8 ({error.reason}); use valid text") from None
