"""The fingerprint of an input: the same for equal JSON, whatever the order of the keys."""

from __future__ import annotations

import hashlib
import json

from pystate.effects.payload import JsonValue, as_json

__all__ = ["fingerprint_of"]


def fingerprint_of(value: JsonValue) -> str:
    """``sha256:`` and the SHA-256, in hexadecimal, of the value as canonical JSON.

    Canonical: keys sorted by code point, no blanks, UTF-8, only control characters, quotes and backslashes escaped,
    floats in their shortest form. What is secret must be masked before.

    Raises:
        NotJsonError: the value is no JSON; NaN and the infinities are none.
    """
    canonical = json.dumps(
        as_json(value, "input"), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"
