"""Every figure runs in its quick size and yields rows; nothing is said about the numbers."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.bench import __main__ as bench
from tests.bench import harness, peers, report
from tests.bench.harness import Context, Row, compare, race


@pytest.mark.parametrize("name", bench.ORDER)
def test_figure_in_quick_size_yields_rows(name: str, tmp_path: pathlib.Path) -> None:
    rows = list(harness.figures()[name].run(Context(tmp_path, quick=True)))
    assert rows
    for row in rows:
        assert row.figure == name
        assert row.what
        assert len(report.cells(row)) == len(report.COLUMNS)
        assert row.met is None or row.goal
    assert any(row.goal for row in rows)
    assert not list(tmp_path.iterdir())


def test_order_of_the_table_names_every_figure_once() -> None:
    assert sorted(bench.ORDER) == sorted(harness.figures())


def test_command_line_prints_json_with_rows_and_environment(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["get", "--quick", "--json", "--directory", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {row["figure"] for row in printed["rows"]} == {"get"}
    assert printed["environment"]["garbage_collector"] == "enabled"


def test_unknown_figure_is_refused_with_the_names_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        bench.main(["fastest"])
    assert stopped.value.code == 2
    assert "put-sync" in capsys.readouterr().err


def test_crashing_figure_gives_exit_code_1(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(context: Context) -> list[Row]:
        raise RuntimeError("as intended")

    monkeypatch.setitem(harness._figures, "crash", harness.Figure("crash", "crashes", crash))  # type: ignore[arg-type]
    assert bench.main(["crash", "--directory", str(tmp_path)]) == 1


def test_race_takes_turns_and_starts_one_further_on_in_each_round() -> None:
    order: list[str] = []

    def contender(name: str) -> harness.Contender:
        def turn() -> float:
            order.append(name)
            return 1.0

        return turn

    seconds = race({name: contender(name) for name in "abc"}, 2)
    assert "".join(order) == "abcbca"
    assert seconds == {"a": [1.0, 1.0], "b": [1.0, 1.0], "c": [1.0, 1.0]}


def test_race_for_the_typical_turn_leaves_out_a_burst() -> None:
    turns = iter([1.0, 50.0, 2.0])
    assert race({"a": lambda: next(turns)}, 1, pieces=3, typical=True) == {"a": [6.0]}


def test_compare_takes_ratios_inside_rounds_and_judges_their_median() -> None:
    seconds = {"floor": [1.0, 2.0, 4.0], "pystate": [1.0, 4.0, 8.0]}
    (row, absent) = compare(
        "figure", "what", seconds, count=1, goals={"floor": 1.5}, default_goal=1.0, missing=["peer"], unit="s"
    )
    assert row.ratios == (1.0, 2.0, 2.0)
    assert row.ratio == 2.0
    assert row.met is False
    assert (absent.against, absent.other, absent.met, absent.note) == ("peer", None, None, "not installed")


@pytest.mark.parametrize("kind", peers.installed(), ids=lambda kind: kind.name)
def test_peer_runs_every_loop(kind: type[peers.Peer], tmp_path: pathlib.Path) -> None:
    items = [(bytes([number]) * 16, bytes(100)) for number in range(50)]
    peer = kind(tmp_path, sync=True)
    try:
        peer.load([items[:25], items[25:]])
        peer.puts(items[:3])
        peer.settle()
        peer.gets([key for key, _value in items])
        peer.scan()
        peer.ranges([items[10][0]], 5)
    finally:
        peer.close()
