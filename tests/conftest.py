"""What holds for every test: the profiles of hypothesis, and assertions that explain themselves everywhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

# Helpers assert as well. Rewritten assertions also stay alive under `python -O`, where plain ones vanish.
HERE = Path(__file__).resolve().parent
pytest.register_assert_rewrite(
    *(
        ".".join(module.relative_to(HERE.parent).with_suffix("").parts)
        for module in HERE.rglob("*.py")
        if module.name not in ("__init__.py", "conftest.py") and not module.name.startswith("test_")
    )
)

# At a desk every run tries new examples; a failure prints what replays it.
settings.register_profile("default", deadline=None, print_blob=True, derandomize=False)
# In CI the same commit gives the same verdict, on a machine that may be slow; new examples are the fuzzers' work.
settings.register_profile(
    "ci",
    deadline=None,
    print_blob=True,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[phase for phase in Phase if phase is not Phase.explain],  # slow; whoever replays it gets the explanation
)
# For a run on one more interpreter (`--hypothesis-profile=brief`): the same tests, few examples of each.
settings.register_profile("brief", parent=settings.get_profile("ci"), max_examples=20, stateful_step_count=20)
settings.load_profile("ci" if os.environ.get("CI", "").lower() == "true" else "default")
