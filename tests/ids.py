"""Names of test cases that are the same in every process, so that several can run one suite."""

from __future__ import annotations

import re

__all__ = ["named"]


def named(value: object) -> str:
    """What `repr` says of a value, with the elements of a set in order and without addresses."""
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(named, value)))}}}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
