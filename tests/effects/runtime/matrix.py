"""The crash matrix as a table: what a crash at each point leaves, and what recovery and one more run make of it.

Three protections: *verified* can be looked up, *idempotent* has a remote that recognises a repeated key, *unprotected*
has neither. A trail is written in the short names of `world.short_names`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pystate.effects import EffectStatus, FaultPoint, Handler
from tests.effects.runtime.remote import Remote

__all__ = ["IN_DOUBT", "PROTECTIONS", "ROWS", "Row", "protected", "rows"]

PROTECTIONS = ("verified", "idempotent", "unprotected")

IN_DOUBT = (FaultPoint.AFTER_ATTEMPT_PERSISTED, FaultPoint.AFTER_ACTION_STARTED, FaultPoint.AFTER_ACTION_RETURNED)
"""Where an effect without protection must be left to a person."""


class Row(NamedTuple):
    """What there is after crash, recovery and one more run.

    Attributes:
        trail: in short.
        attempts: that were started.
        doubt: `may_have_applied` at the end.
        calls: of the action.
        created: how often the world was changed.
    """

    trail: str
    attempts: int
    doubt: bool
    calls: int
    created: int

    @property
    def version(self) -> int:
        return len(self.trail.split())

    @property
    def status(self) -> EffectStatus:
        if self.trail.endswith("ES"):
            return EffectStatus.NEEDS_INTERVENTION
        return EffectStatus.COMPENSATED if self.trail.endswith("CD") else EffectStatus.COMMITTED


_FIRST = {
    "verified": Row("AS VS VC", 1, False, 1, 1),
    "idempotent": Row("AS OK", 1, False, 1, 1),
    "unprotected": Row("AS OK", 1, False, 1, 1),
}
_LANDED = {
    "verified": Row("AS LX VS VC", 1, True, 1, 1),
    "idempotent": Row("AS LX RS AS OK", 2, True, 2, 1),
    "unprotected": Row("AS LX ES", 1, True, 1, 1),
}
ROWS: dict[FaultPoint, dict[str, Row]] = {
    FaultPoint.BEFORE_INSERT: _FIRST,
    FaultPoint.AFTER_INSERT: _FIRST,
    FaultPoint.AFTER_APPROVAL_REQUESTED: {
        name: row._replace(trail=f"AR AP {row.trail}") for name, row in _FIRST.items()
    },
    FaultPoint.AFTER_ATTEMPT_PERSISTED: {
        "verified": Row("AS LX VS RS AS VS VC", 2, False, 1, 1),
        "idempotent": Row("AS LX RS AS OK", 2, True, 1, 1),
        "unprotected": Row("AS LX ES", 1, True, 0, 0),
    },
    FaultPoint.AFTER_ACTION_STARTED: _LANDED,
    FaultPoint.AFTER_ACTION_RETURNED: _LANDED,
    FaultPoint.AFTER_VERIFICATION_STARTED: {"verified": Row("AS VS LX VS VC", 1, True, 1, 1)},
    FaultPoint.AFTER_COMPENSATION_STARTED: {
        name: row._replace(trail=f"{row.trail} CS CR CD") for name, row in _FIRST.items()
    },
}
"""What a crash at a point comes to, for each protection with which the point is reached."""


def rows(*points: FaultPoint) -> list[tuple[FaultPoint, str]]:
    """Every point (or these) with every protection that reaches it."""
    return [(point, protection) for point in points or FaultPoint for protection in ROWS[point]]


def protected(remote: Remote, protection: str, point: FaultPoint, **settings: Any) -> Handler[Any]:
    """The effect of the matrix: irreversible, with this protection; with an approval only where that is the point."""
    if protection == "verified":
        settings["verify"] = remote.look_up
    elif protection == "idempotent":
        settings["remote_idempotency"] = remote.honours_keys = True
    approval = point is FaultPoint.AFTER_APPROVAL_REQUESTED
    return Handler("payment.charge", remote.create, compensate=remote.undo, require_approval=approval, **settings)
