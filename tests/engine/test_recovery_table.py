"""The table that recovery decides by, tried with every combination of facts against the rules in prose."""

from __future__ import annotations

from itertools import product

import pytest

from pystate.engine.recovery import DECISIONS, Facts, decide

ENDINGS = ("close", "switch", "end", "damage")
EVERYTHING = [Facts(*facts) for facts in product((True, False), (True, False), ENDINGS, (True, False), (True, False))]


def rule(facts: Facts) -> str:
    """What design section 5 and rule R2 of the reliability page ask for, sentence by sentence."""
    # "A clean close leaves a closing frame, so damage after a clean close is always seen": a segment with the name of a
    # closed one must end in that frame, and in no other way.
    if facts.closed_name and facts.ending != "close":
        return "corrupt"
    # "A torn tail only if (a) it is in the newest file": an older segment is complete, which the first sequence of the
    # next one proves, or there is a hole. Whatever stands behind its last commit can only be its closing frame, and
    # what proves later commits durable says nothing about it, since they stand in later segments.
    if not facts.newest:
        return "next" if facts.follows else "corrupt"
    # "(c) nothing durable (next file, snapshot, a later record's watermark) proves that more was acknowledged": a
    # closing frame that names the next file is such a proof, when that file is missing.
    if facts.ending == "switch" or facts.proven:
        return "corrupt"
    # "Torn tail -> cut": what is unreadable at the end is the tail.
    return {"close": "clean", "end": "unclosed", "damage": "torn"}[facts.ending]


@pytest.mark.parametrize("facts", EVERYTHING, ids=str)
def test_combination_of_facts_gets_the_decision_of_the_rules(facts: Facts) -> None:
    """Guarantee 5: every combination has a decision, and it is the one that the rules give."""
    assert decide(facts).action == rule(facts)


@pytest.mark.parametrize("facts", EVERYTHING, ids=str)
def test_combination_of_facts_is_decided_by_the_first_row_that_fits(facts: Facts) -> None:
    """The table is read from top to bottom, and a row stands for every fact that it names."""
    fitting = [
        row
        for row in DECISIONS
        if row.newest in (None, facts.newest)
        and row.closed_name in (None, facts.closed_name)
        and row.ending in (None, facts.ending)
        and row.follows in (None, facts.follows)
        and row.proven in (None, facts.proven)
    ]
    assert decide(facts) is fitting[0]


def test_every_row_is_reached() -> None:
    """A row that no combination reaches would be a rule that nobody obeys."""
    assert {decide(facts).row for facts in EVERYTHING} == {row.row for row in DECISIONS}


def test_rows_are_labelled_in_order_and_reasoned() -> None:
    """A row can be quoted by its letter, and says why."""
    assert [row.row for row in DECISIONS] == [chr(ord("A") + at) for at in range(len(DECISIONS))]
    assert all(row.why for row in DECISIONS)
    assert {row.action for row in DECISIONS} == {"next", "clean", "unclosed", "torn", "corrupt"}


@pytest.mark.parametrize("facts", [facts for facts in EVERYTHING if rule(facts) != "corrupt"], ids=str)
def test_acceptance_with_one_fact_changed_never_forgives_a_proof_or_a_hole(facts: Facts) -> None:
    """Guarantee 5: what accepts a log refuses it when the same log is proven to have been longer, or has a hole."""
    if facts.newest:
        assert decide(facts._replace(proven=True)).action == "corrupt"
    else:
        assert decide(facts._replace(follows=False)).action == "corrupt"
    assert facts.ending == "close" or decide(facts._replace(closed_name=True)).action == "corrupt"
