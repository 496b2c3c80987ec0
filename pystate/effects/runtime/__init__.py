"""The runtime: runs effects, records each before it runs, and never repeats one whose outcome is unknown blindly.

From the bottom up, each module importing only those above it::

    clock  outcomes  answers     time; what an effect came to; what its code is told and answers
    code  effect                 calling that code, plain or async; the description of an effect
    faults  observing            crashes on purpose; telling others what happens
    parts                        what a runtime consists of
    writing                      the one place that every transition passes: redact, store, notify; one commit
    holding                      a lease that is renewed while its holder waits
    call  report                 an effect with its key and input; what a record says, as an outcome
    steps                        what comes next by the status, and the writes that need nothing else
    attempt  verification  conditions    the action; the lookup; precondition and approval
    run                          from a call to an outcome, in rounds of one lease each
    tasks  waiting  plain        apart from the callers; for what others do; for callers without an event loop
    handlers  compensation       effects that are known by name; undoing them
    decorated  facet             effects called like functions; what the sides of a runtime share; its sides:
    handling  compensating  operators  retention  recovery
    runtime                      `Runtime`, which puts all of it together

`telemetry` stands beside them: nothing here imports it.
"""

from pystate.effects.runtime.answers import Approval, ApprovalRequest, EffectContext, Precondition, Verification
from pystate.effects.runtime.clock import Clock, SystemClock
from pystate.effects.runtime.compensation import CompensationContext
from pystate.effects.runtime.decorated import AsyncEffect, BoundEffect, PlainEffect
from pystate.effects.runtime.effect import Effect, EffectSettings
from pystate.effects.runtime.faults import ABORT_STATUS, FaultAction, FaultInjector, FaultPoint
from pystate.effects.runtime.handlers import Handler, HandlerSettings
from pystate.effects.runtime.observing import Observation, Observer
from pystate.effects.runtime.operators import Resolution
from pystate.effects.runtime.outcomes import (
    AwaitingApproval,
    Committed,
    Compensated,
    CompensationOutcome,
    Failed,
    InProgress,
    NeedsIntervention,
    NotCommitted,
    Outcome,
    Rejected,
    Unknown,
)
from pystate.effects.runtime.parts import RuntimeStore
from pystate.effects.runtime.recovery import RecoveryReport
from pystate.effects.runtime.retention import PruneReport, RetentionPolicy
from pystate.effects.runtime.runtime import Runtime

__all__ = [
    "ABORT_STATUS",
    "Approval",
    "ApprovalRequest",
    "AsyncEffect",
    "AwaitingApproval",
    "BoundEffect",
    "Clock",
    "Committed",
    "Compensated",
    "CompensationContext",
    "CompensationOutcome",
    "Effect",
    "EffectContext",
    "EffectSettings",
    "Failed",
    "FaultAction",
    "FaultInjector",
    "FaultPoint",
    "Handler",
    "HandlerSettings",
    "InProgress",
    "NeedsIntervention",
    "NotCommitted",
    "Observation",
    "Observer",
    "Outcome",
    "PlainEffect",
    "Precondition",
    "PruneReport",
    "RecoveryReport",
    "Rejected",
    "Resolution",
    "RetentionPolicy",
    "Runtime",
    "RuntimeStore",
    "SystemClock",
    "Unknown",
    "Verification",
]
