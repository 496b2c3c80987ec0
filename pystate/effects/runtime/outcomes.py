"""What an effect came to. Results are outcomes, never exceptions; an exception means that it could not be run at all.

    outcome = await runtime.run(charge, "order_5824", order)
    match outcome:
        case Committed(receipt): ...            # done, and known to be
        case Failed(error) | Rejected(error): ...   # certainly not done
        case _: ...                             # not settled: look again later, or let a person decide

``outcome.unwrap()`` gives the value, or raises. All are immutable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NoReturn, TypeAlias, TypeVar

from pystate.effects.ids import EffectId
from pystate.effects.kinds import ErrorRecord
from pystate.effects.state import EffectStatus
from pystate.errors import EffectOutcomeError

__all__ = [
    "AwaitingApproval",
    "Committed",
    "Compensated",
    "CompensationOutcome",
    "Failed",
    "InProgress",
    "NeedsIntervention",
    "NotCommitted",
    "Outcome",
    "Rejected",
    "Unknown",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Committed(Generic[T_co]):
    """It happened.

    Attributes:
        value: what the action returned, if it ran in this call; else the stored output, in which secrets are masked.
        id: the effect; not compared.
    """

    value: T_co
    id: EffectId | None = field(default=None, compare=False, kw_only=True)

    def unwrap(self) -> T_co:
        """The value."""
        return self.value


class _WithoutValue:
    __slots__ = ()

    def unwrap(self) -> NoReturn:
        """Raise, since there is no value.

        Raises:
            EffectOutcomeError: always.
        """
        raise EffectOutcomeError(self)


@dataclass(frozen=True, slots=True)
class Failed(_WithoutValue):
    """It certainly did not happen (or, of a compensation: it was not undone), and is not tried again.

    Attributes:
        error: the last error; its class is None where no attempt made it.
        id: the effect; not compared.
    """

    error: ErrorRecord
    id: EffectId | None = field(default=None, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Rejected(_WithoutValue):
    """It was not attempted: its precondition did not hold, or somebody denied it.

    Attributes:
        error: why.
        id: the effect; not compared.
    """

    error: ErrorRecord
    id: EffectId | None = field(default=None, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Unknown(_WithoutValue):
    """It may have happened, and looking it up has not told yet. The next call, or recovery, looks again."""

    id: EffectId


@dataclass(frozen=True, slots=True)
class NeedsIntervention(_WithoutValue):
    """It may have happened, and nothing but a person can tell. It is not run again until one has decided."""

    id: EffectId


@dataclass(frozen=True, slots=True)
class Compensated(_WithoutValue):
    """It happened, and was undone."""

    id: EffectId


@dataclass(frozen=True, slots=True)
class AwaitingApproval(_WithoutValue):
    """Nobody has approved it yet."""

    id: EffectId


@dataclass(frozen=True, slots=True)
class InProgress(_WithoutValue):
    """Somebody else is working on it, or will go on with it later."""

    id: EffectId


@dataclass(frozen=True, slots=True)
class NotCommitted(_WithoutValue):
    """There is nothing to undo: the effect is not committed.

    Attributes:
        id: the effect.
        status: where it stands.
    """

    id: EffectId
    status: EffectStatus


Outcome: TypeAlias = (
    Committed[T] | Failed | Rejected | Unknown | NeedsIntervention | Compensated | AwaitingApproval | InProgress
)
"""What running an effect comes to."""

CompensationOutcome: TypeAlias = Compensated | Failed | InProgress | NotCommitted
"""What undoing an effect comes to."""
