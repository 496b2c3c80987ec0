"""For those who write a store of effects themselves: a suite that tells whether it keeps what `EffectLedger` promises.

    >>> from pystate.effects import EffectStore
    >>> from pystate.effects.testing import conformance
    >>> conformance(EffectStore.memory)

With pytest, a test for each promise::

    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_my_store_keeps_its_promises(case):
        case.run(MyStore)

Some cases call the store from several threads at once.

`ManualClock` is a clock for a `Runtime` that a test drives: no test of retries or leases needs to sleep.
"""

from pystate.effects.testing.clock import ManualClock
from pystate.effects.testing.conformance import CASES, conformance
from pystate.effects.testing.trial import Case, ConformanceError

__all__ = ["CASES", "Case", "ConformanceError", "ManualClock", "conformance"]
