"""Formats: which version the content of a directory has, and which versions a program can read.

From the bottom up, each module importing only those above it::

    versions      `Version`: strict semantic versions, their text and their order
    requirements  `Requirement`: which versions a program accepts
    markers       the file ``VERSION`` of a directory, replaced so that a crash leaves the old text or the new one
    content       the version of its content in the metadata of a store
    families      for migrations: making, dropping, renaming families
    values        for migrations: rewriting the values of a family from one shape to the next
    plan          `Step`, `Migration`, `MigrationPlan`: what a migration consists of
    standing      what markers and content say together, and what follows from it
    migrating     `migrate`
    backup        a package of its own: `pystate.formats.backup.create`, `restore` and more
"""

from pystate.errors import (
    ContentVersionError,
    FamilyConflictError,
    MarkerError,
    MarkerNotFoundError,
    MarkerParseError,
    MarkerReadError,
    MarkerWriteError,
    MigrationError,
    MigrationFamiliesError,
    MixedShapesError,
    UnknownShapeError,
    UnsupportedVersionError,
    VersionError,
    VersionMismatchError,
)
from pystate.formats import backup
from pystate.formats.content import FORMAT_KEY
from pystate.formats.families import create_families, drop_families, rename_family
from pystate.formats.markers import (
    read_version_marker,
    retrieve_or_create,
    write_version_marker,
    write_version_markers,
)
from pystate.formats.migrating import MigrationReport, migrate
from pystate.formats.plan import Migration, MigrationPlan, Progress, Step, StepContext, StepReport
from pystate.formats.requirements import Comparator, Requirement
from pystate.formats.values import Shape, all_current, rewrite_values
from pystate.formats.versions import Version

__all__ = [
    "FORMAT_KEY",
    "Comparator",
    "ContentVersionError",
    "FamilyConflictError",
    "MarkerError",
    "MarkerNotFoundError",
    "MarkerParseError",
    "MarkerReadError",
    "MarkerWriteError",
    "Migration",
    "MigrationError",
    "MigrationFamiliesError",
    "MigrationPlan",
    "MigrationReport",
    "MixedShapesError",
    "Progress",
    "Requirement",
    "Shape",
    "Step",
    "StepContext",
    "StepReport",
    "UnknownShapeError",
    "UnsupportedVersionError",
    "Version",
    "VersionError",
    "VersionMismatchError",
    "all_current",
    "backup",
    "create_families",
    "drop_families",
    "migrate",
    "read_version_marker",
    "rename_family",
    "retrieve_or_create",
    "rewrite_values",
    "write_version_marker",
    "write_version_markers",
]
