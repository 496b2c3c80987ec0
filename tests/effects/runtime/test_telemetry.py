"""Spans: one for each stay in a status, with the times of the record; OpenTelemetry itself is not needed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pystate.effects import Committed, EffectFailure, FaultPoint
from pystate.effects.runtime import telemetry
from pystate.effects.runtime.telemetry import SpanObserver
from tests.effects.runtime.leaving import LAPSE, crash, do, handler, worker
from tests.effects.runtime.world import World


class FakeSpan:
    def __init__(self, name: str, attributes: Any, start_time: int | None) -> None:
        self.name, self.attributes, self.start_time = name, attributes, start_time or 0
        self.end_time = 0

    def end(self, end_time: int | None = None) -> None:
        self.end_time = end_time or 0

    @property
    def seconds(self) -> float:
        return (self.end_time - self.start_time) / 1e9


class FakeTracer:
    def __init__(self) -> None:
        self.spans: list[FakeSpan] = []

    def start_span(self, name: str, *, attributes: Any = None, start_time: int | None = None) -> FakeSpan:
        self.spans.append(FakeSpan(name, attributes, start_time))
        return self.spans[-1]


def test_a_span_for_each_stay(world: World) -> None:
    tracer = FakeTracer()
    world.remote.script = [EffectFailure.transient("busy")]
    outcome = world.run(handler(world), "order_1", "s3cret", actor="ann", observers=[SpanObserver(tracer)])
    assert outcome == Committed("res_1")
    assert [(span.name, span.seconds) for span in tracer.spans] == [
        ("payment.charge pending", 0),
        ("payment.charge executing", 0),
        ("payment.charge pending", 1),
        ("payment.charge executing", 0),
    ]
    record = world.record()
    assert tracer.spans[1].attributes == {
        "pystate.effect.id": record.id,
        "pystate.effect.name": "payment.charge",
        "pystate.effect.key": "order_1",
        "pystate.effect.kind": str(record.kind),
        "pystate.effect.transition": "effect.retry_scheduled",
        "pystate.effect.from": "executing",
        "pystate.effect.to": "pending",
        "pystate.effect.attempt": 1,
        "pystate.effect.actor": "ann",
        "error.type": "transient",
    }
    assert "error.type" not in tracer.spans[3].attributes
    assert datetime.fromtimestamp(tracer.spans[3].end_time / 1e9, UTC) == record.updated_at
    assert "s3cret" not in repr([span.attributes for span in tracer.spans])


def test_the_span_of_an_attempt_that_was_cut_off_ends_where_it_was_marked(world: World) -> None:
    charge, tracer = handler(world), FakeTracer()
    crash(world, charge, FaultPoint.AFTER_ATTEMPT_PERSISTED)
    world.pass_time(LAPSE)
    do(world, worker(world, observers=[SpanObserver(tracer)]).recover())
    (span,) = tracer.spans
    assert (span.name, span.seconds) == ("payment.charge executing", LAPSE)
    assert span.attributes["pystate.effect.actor"] == "recovery:w" and "error.type" not in span.attributes


def test_without_the_extra_a_tracer_must_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "trace", None)
    with pytest.raises(ModuleNotFoundError, match=r"pystate-store\[otel\]"):
        SpanObserver()

    class FakeTrace:
        @staticmethod
        def get_tracer(name: str) -> Any:
            assert name == "pystate"
            return FakeTracer()

    monkeypatch.setattr(telemetry, "trace", FakeTrace)
    SpanObserver()
