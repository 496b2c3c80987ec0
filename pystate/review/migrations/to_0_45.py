"""From 0.44 to 0.45: a confidence of a triage policy may be without a category.

Each category c becomes "c, or none". As these values are stored, that is the same byte: none is the only thing that is
new. So a policy of the old shape is one of the new shape, and all that is left to do is to look that each is one of
them. The old shape is asked first, as where they differ: none cannot occur before the chain has come to its end.
"""

from __future__ import annotations

from pystate import Rewriting
from pystate.formats import Migration, Step, StepContext, rewrite_values
from pystate.review.categories import EventCategory
from pystate.review.migrations.shapes import RowValue, shape_of
from pystate.review.stored import U32, Instant
from pystate.review.triage import PacketAttr, Response

__all__ = ["MIGRATION", "NewConfidence", "NewPolicyValue", "OldConfidence", "OldPolicyValue"]

_POLICIES = "triage policy"


class OldConfidence(RowValue, frozen=True):
    """A kind of threat of one category."""

    threat_category: EventCategory
    threat_kind: str
    confidence: float
    weight: float | None


class NewConfidence(RowValue, frozen=True):
    """A kind of threat of one category, or of any."""

    threat_category: EventCategory | None
    threat_kind: str
    confidence: float
    weight: float | None


class OldPolicyValue(RowValue, frozen=True):
    """A triage policy; its customer and its name are its key, too."""

    id: U32
    name: str
    triage_exclusion_id: tuple[U32, ...]
    packet_attr: tuple[PacketAttr, ...]
    confidence: tuple[OldConfidence, ...]
    response: tuple[Response, ...]
    creation_time: Instant
    customer_id: U32 | None


class NewPolicyValue(RowValue, frozen=True):
    """Likewise, with confidences that may be of any category."""

    id: U32
    name: str
    triage_exclusion_id: tuple[U32, ...]
    packet_attr: tuple[PacketAttr, ...]
    confidence: tuple[NewConfidence, ...]
    response: tuple[Response, ...]
    creation_time: Instant
    customer_id: U32 | None


_read_old = shape_of(OldPolicyValue)
new_policy = shape_of(NewPolicyValue)


def old_policy(key: bytes, value: bytes) -> bytes:
    """The value itself, if it has the old shape."""
    _read_old(key, value)
    return value


def make_category_optional(rewriting: Rewriting, context: StepContext) -> None:
    """Let a confidence be without a category.

    Raises:
        UnknownShapeError: a policy has neither shape.
    """
    rewrite_values(
        rewriting,
        _POLICIES,
        current=new_policy,
        old=old_policy,
        convert=lambda value: value,
        kind="triage policy",
        old_first=True,
        skip=(b"",),
        progress=context.progress,
    )


MIGRATION = Migration(
    ">=0.44.0,<0.45.0",
    "0.45.0",
    [Step("make the category of a confidence optional", make_category_optional, needs=[_POLICIES])],
)
"""The migration."""
