"""The chain of migrations, the version of the format that this program has, and the versions that it reads.

Whoever changes the format adds a list of families and a migration, and changes all three constants here in the same
change. A migration takes every released version that has the old format, and none that has the new one; it leads to the
first version that has the new one. A later alpha of the same version extends the migration instead, and takes the
earlier alphas. A pre-release satisfies a requirement only if that names a pre-release of the same three numbers.
"""

from __future__ import annotations

from pystate.formats import Migration, MigrationPlan, Requirement, Version
from pystate.review.families import (
    FAMILIES_0_42,
    FAMILIES_0_43,
    FAMILIES_0_47_0_ALPHA_1,
    FAMILIES_0_47_0_ALPHA_2,
)
from pystate.review.migrations import to_0_43, to_0_44, to_0_45, to_0_47

__all__ = ["COMPATIBLE", "MIGRATION_PLAN", "VERSION"]

VERSION = Version.parse("0.47.0-alpha.2")
"""The version of the format: what new states get, and old ones become."""

COMPATIBLE = Requirement.parse(">=0.47.0-alpha.2,<0.47.0-alpha.3")
"""The versions whose state is read as it is."""

#: Between these two only events have changed, of which nothing is stored here but in `default`, which is left alone.
_TO_0_46 = Migration(">=0.45.0,<0.46.0", "0.46.0", [])

MIGRATION_PLAN = MigrationPlan(
    [to_0_43.MIGRATION, to_0_44.MIGRATION, to_0_45.MIGRATION, _TO_0_46, to_0_47.MIGRATION],
    version=VERSION,
    compatible=COMPATIBLE,
    families={
        "0.42.0": FAMILIES_0_42,
        "0.43.0": FAMILIES_0_43,
        "0.47.0-alpha.1": FAMILIES_0_47_0_ALPHA_1,
        "0.47.0-alpha.2": FAMILIES_0_47_0_ALPHA_2,
    },
)
"""What `migrate_data_dir` does, from each version since 0.42.0. Family ``default`` is left alone byte for byte."""
