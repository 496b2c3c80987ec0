"""Effects as spans of OpenTelemetry: one for each stay in a status, from the transition into it to the one out of it.

    from pystate.effects.runtime.telemetry import SpanObserver

    runtime = Runtime(store, observers=[SpanObserver()])

The time comes from the record, so the span of an attempt that a crash has cut off ends where recovery marked it. Keys
and notes are as they are stored; inputs and outputs are not told. Needs the extra ``otel``, unless a tracer is given.
Nothing else in the package imports this module.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from pystate.effects.runtime.observing import Observation, Observer

try:
    from opentelemetry import trace
except ImportError:  # without the extra
    trace = None

__all__ = ["Span", "SpanObserver", "Tracer"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Span(Protocol):
    """What is needed of a span."""

    def end(self, end_time: int | None = None) -> None:
        """End it, at this time in nanoseconds."""


class Tracer(Protocol):
    """What is needed of a tracer."""

    def start_span(self, name: str, *, attributes: Any = None, start_time: int | None = None) -> Span:
        """Begin a span, at this time in nanoseconds."""
        ...


class SpanObserver(Observer):
    """Makes spans. Any number of runtimes may share it.

    A span is called ``payment.charge executing``, and has the attributes ``pystate.effect.id``, ``.name``, ``.key``,
    ``.kind``, ``.transition``, ``.from``, ``.to``, ``.attempt``, ``.actor``, and of an error ``error.type``.

    Arguments:
        tracer: None is that of the program, named ``pystate``.

    Raises:
        ModuleNotFoundError: no tracer, and OpenTelemetry is not installed.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        if tracer is None:
            if trace is None:
                raise ModuleNotFoundError("OpenTelemetry is not installed: pip install 'pystate-store[otel]'")
            tracer = trace.get_tracer("pystate")
        self._tracer: Tracer = tracer

    def on_transition(self, observation: Observation) -> None:
        """Tell of the status that was left."""
        record = observation.record
        attributes: dict[str, Any] = {
            "pystate.effect.id": str(record.id),
            "pystate.effect.name": str(record.key.name),
            "pystate.effect.key": str(record.key.key),
            "pystate.effect.kind": str(record.kind),
            "pystate.effect.transition": observation.transition.audit_name,
            "pystate.effect.from": str(observation.from_status),
            "pystate.effect.to": str(observation.to_status),
            "pystate.effect.attempt": record.attempt_count,
        }
        if observation.actor is not None:
            attributes["pystate.effect.actor"] = observation.actor
        error = record.last_error
        if error is not None and error.failure_class is not None and not observation.to_status.is_settled:
            attributes["error.type"] = error.failure_class.name
        end = (record.updated_at - _EPOCH) // timedelta(microseconds=1) * 1000
        start = end - observation.in_previous_status // timedelta(microseconds=1) * 1000
        name = f"{record.key.name} {observation.from_status}"
        self._tracer.start_span(name, attributes=attributes, start_time=start).end(end)
