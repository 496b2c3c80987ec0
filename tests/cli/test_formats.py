"""``version``, ``migrate``, ``backup`` and ``rollback``: what they print, where, and their exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pystate
import pystate.review
from pystate import Rewriting
from pystate.cli.arguments import build_parser
from pystate.formats import (
    Migration,
    MigrationPlan,
    MigrationReport,
    Step,
    StepContext,
    Version,
    backup,
    migrate,
    read_version_marker,
    write_version_markers,
)
from pystate.formats.backup.manifests import content_name, manifest_name
from pystate.review.migrations import MIGRATION_PLAN
from tests.cli.running import run, run_process


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory of version 1.0.0, with a store; beside it a backup directory."""
    data = tmp_path / "data"
    write_version_markers(data, tmp_path / "backup", "1.0.0")
    with pystate.open(data / "states.db", families=["a"], metadata={"format": "1.0.0"}) as store:
        store.family("a").update({b"k": b"one", b"l": b"two"})
    return data


@pytest.fixture
def beside(data: Path) -> Path:
    """The backup directory."""
    return data.with_name("backup")


@pytest.fixture
def store(data: Path) -> Path:
    return data / "states.db"


@pytest.fixture
def repository(beside: Path) -> Path:
    return beside / "states.db"


def put(store: Path, value: str) -> None:
    run("put", store, "k", value, "--family", "a")


def got(store: Path) -> bytes:
    return run("get", store, "k", "--family", "a", "--raw").out


# ---------------------------------------------------------------------------------------------------------- backup


def test_create_prints_the_id(store: Path, repository: Path) -> None:
    assert run("backup", "create", store, repository) == (0, b"1\n", "")
    assert run("backup", "create", store, repository).out == b"2\n"
    made = run("backup", "create", store, repository, "--keep", "1", "--json").json
    assert (made["id"], made["version"], made["families"]) == (3, "1.0.0", {"a": 2, "default": 0})
    assert made["timestamp"].endswith("Z")
    assert [info.id for info in backup.list(repository)] == [3]


def test_create_works_beside_the_writer(store: Path, repository: Path) -> None:
    with pystate.open(store) as writer:
        writer.family("a")[b"k"] = b"not closed yet"
        assert run_process("backup", "create", store, repository) == (0, b"1\n", "")
    run("backup", "restore", store, repository)
    assert got(store) == b"not closed yet"


def test_list_shows_what_can_be_restored_and_tells_of_the_rest(store: Path, repository: Path) -> None:
    for number in range(3):
        put(store, str(number))
        run("backup", "create", store, repository)
    lines = run("backup", "list", repository).out.decode().splitlines()
    assert lines[0].split() == ["id", "made", "at", "version", "sequence", "entries", "bytes"]
    assert [line.split()[0] for line in lines[1:]] == ["1", "2", "3"]
    assert lines[1].split()[3] == "1.0.0"
    (repository / content_name(2)).unlink()
    damaged = run("backup", "list", repository)
    assert [line.split()[0] for line in damaged.out.decode().splitlines()[1:]] == ["1", "3"]
    assert damaged.err.endswith("backup 2 is damaged: expected the content of the backup, found no such file\n")
    document = run("backup", "list", repository, "--json").json
    assert [each["id"] for each in document["backups"]] == [1, 3]
    assert document["damaged"] == [2]


def test_list_of_an_empty_repository_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert run("backup", "list", tmp_path / "empty") == (0, b"", "")
    assert run("backup", "list", tmp_path / "empty", "--json").json == {"backups": [], "damaged": []}


def test_verify_reads_everything_and_damage_is_a_no(store: Path, repository: Path) -> None:
    run("backup", "create", store, repository)
    put(store, "2")
    run("backup", "create", store, repository)
    assert "backups that are intact  2" in run("backup", "verify", repository).out.decode()
    content = repository / content_name(1)
    content.write_bytes(content.read_bytes().replace(b"two", b"TWO"))
    assert run("backup", "list", repository).err == ""  # it does not show without reading everything
    damaged = run("backup", "verify", repository, code=1)
    assert content_name(1) in damaged.out.decode()
    assert run("backup", "verify", repository, "--id", "2").code == 0
    assert run("backup", "verify", repository, "--id", "1", code=1).err == ""
    document = run("backup", "verify", repository, "--json", code=1).json
    assert ([each["id"] for each in document["problems"]], document["ok"]) == ([1], False)


def test_restore_by_id_and_the_newest(store: Path, repository: Path, tmp_path: Path) -> None:
    for value in ("first", "second"):
        put(store, value)
        run("backup", "create", store, repository)
    put(store, "third")
    shown = run("backup", "restore", store, repository, "--id", "1").out.decode()
    assert "from backup             1\n" in shown
    assert "a store was replaced    yes\n" in shown
    assert got(store) == b"first"
    document = run("backup", "restore", tmp_path / "new", repository, "--json").json
    assert (document["backup"]["id"], document["replaced"]) == (2, False)
    assert got(tmp_path / "new") == b"second"


def test_purge_tells_what_it_removed(store: Path, repository: Path) -> None:
    for _ in range(3):
        run("backup", "create", store, repository)
    assert run("backup", "purge", repository, "--keep", "2") == (0, b"removed backup 1\n", "")
    assert run("backup", "purge", repository, "--keep", "2") == (0, b"", "")
    assert run("backup", "purge", repository, "--keep", "1", "--json").json == {"removed": [2]}


def test_what_cannot_be_done_says_why_and_what_to_do(store: Path, repository: Path, tmp_path: Path) -> None:
    run("backup", "create", store, repository)
    unknown = run("backup", "restore", store, repository, "--id", "9", code=5)
    assert unknown.err == f"pystate: {repository}: no backup 9; there are 1\n"
    missing = run("backup", "list", tmp_path / "missing", code=5)
    assert missing.err.endswith("missing: no backups here; check the path, or make a first backup there\n")
    assert "not a repository of backups" in run("backup", "list", store, code=5).err
    assert "not a repository of backups" in run("backup", "create", store, store, code=5).err
    assert (
        "its parent directory does not exist" in run("backup", "restore", tmp_path / "a" / "b", repository, code=5).err
    )
    assert "nothing was done" in run("backup", "restore", repository, repository, code=2).err
    with pystate.open(store):
        assert "end it there" in run("backup", "restore", store, repository, code=3).err
    held = pystate.OsFiles().lock(str(repository), "LOCK", 0.0)
    try:
        for command in (("create", store, repository), ("purge", repository, "--keep", "1")):
            assert "wait with --lock-timeout SECONDS" in run("backup", *command, code=3).err
    finally:
        held.release()
    (repository / manifest_name(1)).write_bytes(b"junk")
    damaged = run("backup", "restore", store, repository, code=4)
    assert f"`pystate backup verify {repository}`" in damaged.err
    assert run("backup", "create", tmp_path / "missing", repository, code=5).out == b""


@pytest.mark.parametrize(
    "argv",
    [
        ("backup",),
        ("backup", "make"),
        ("backup", "purge", "r"),
        ("backup", "purge", "r", "--keep", "0"),
        ("backup", "create", "s", "r", "--keep", "-1"),
        ("backup", "restore", "s", "r", "--id", "newest"),
        ("backup", "restore", "s", "r", "--id", "0"),
        ("rollback", "d", "b"),
        ("version",),
        ("migrate", "d"),
    ],
    ids=" ".join,
)
def test_wrong_arguments(argv: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*argv, code=2).err.startswith("usage: pystate")
    assert not list(tmp_path.iterdir())


# --------------------------------------------------------------------------------------------------------- version


def test_version_shows_markers_stores_and_backups(
    data: Path, beside: Path, store: Path, repository: Path, tmp_path: Path
) -> None:
    run("backup", "create", store, repository)
    shown = run("version", data, beside).out.decode().splitlines()
    assert [line.split() for line in shown] == [
        ["path", "what", "version"],
        [str(data), "marker", "1.0.0"],
        [str(store), "content", "of", "the", "store", "1.0.0"],
        [str(store), "format", "of", "its", "files", "1"],
        [str(beside), "marker", "1.0.0"],
        [str(repository), "content", "of", "the", "newest", "of", "1", "backups,", "1", "1.0.0"],
        ["this", "pystate", "writes", "files", "of", "format", "1"],
    ]
    document = run("version", data, store, beside, repository, "--json").json
    assert document["file_format"] == 1
    found = document["directories"]
    of_store = {"path": str(store), "content": "1.0.0", "file_format": 1}
    of_backups = {"path": str(repository), "backups": 1, "newest_id": 1, "newest_content": "1.0.0"}
    assert found == [
        {"path": str(data), "marker": "1.0.0", "stores": [of_store], "repositories": []},
        {"path": str(store), "marker": None, "stores": [of_store], "repositories": []},
        {"path": str(beside), "marker": "1.0.0", "stores": [], "repositories": [of_backups]},
        {"path": str(repository), "marker": None, "stores": [], "repositories": [of_backups]},
    ]


def test_version_of_what_is_nothing_of_the_kind(tmp_path: Path, data: Path) -> None:
    (tmp_path / "empty").mkdir()
    nothing = run("version", data, tmp_path / "empty", code=1)
    assert nothing.err == f"pystate: {tmp_path / 'empty'}: no marker, no store and no backups here\n"
    assert run("version", tmp_path / "missing", code=5).err.endswith("missing: no such directory; check the path\n")
    (data / "VERSION").write_text("not a version")
    assert "cannot parse VERSION" in run("version", data, code=5).err


def test_version_of_a_store_with_a_newer_file_format(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pystate.engine import snapshot_format

    with monkeypatch.context() as patch:
        patch.setattr(snapshot_format, "FORMAT_VERSION", 7)
        pystate.open(store.with_name("newer")).close()
    document = run("version", store.with_name("newer"), "--json").json
    assert document["directories"][0]["stores"][0]["file_format"] == 7


# --------------------------------------------------------------------------------------------------------- migrate


def shout(rewriting: Rewriting, _: StepContext) -> None:
    family = rewriting.family("a")
    for key, value in family.items():
        family[key] = value.upper()


PLAN = MigrationPlan(
    [Migration(">=1.0.0,<2.0.0", "2.0.0", [Step("shout", shout, needs=["a"]), Step.creating("b")])],
    version="2.0.0",
    compatible=">=2.0.0,<3.0.0",
    families={"1.0.0": ["a"], "2.0.0": ["a", "b"]},
)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The REview state has the plan above."""

    def migrate_data_dir(data_dir: str, backup_dir: str, **options: Any) -> MigrationReport:
        return migrate(data_dir, backup_dir, PLAN, **options)

    monkeypatch.setattr(pystate.review, "migrate_data_dir", migrate_data_dir)


@pytest.mark.usefixtures("planned")
def test_migrate_first_dry_then_in_earnest(data: Path, beside: Path, store: Path) -> None:
    dry = run("migrate", data, beside, "--dry-run").out.decode()
    for line in ("version it would have           2.0.0", "something would change          yes", "shout"):
        assert line in dry
    document = run("migrate", data, beside, "--dry-run", "--json").json
    assert (document["before"], document["version"], document["database_marker"]) == ("1.0.0", "2.0.0", "1.0.0")
    assert document["rewrite"]["rows"] == {"a": {"added": 0, "removed": 0, "changed": 2}}
    assert [(step["step"], step["target"]) for step in document["steps"]] == [
        ("shout", "2.0.0"),
        ("create 'b'", "2.0.0"),
    ]
    assert (got(store), str(read_version_marker(data))) == (b"one", "1.0.0")
    assert "version it has now              2.0.0" in run("migrate", data, beside).out.decode()
    assert (got(store), str(read_version_marker(data)), str(read_version_marker(beside))) == (b"ONE", "2.0.0", "2.0.0")
    assert run("migrate", data, beside, "--json").json["changed"] is False


def test_migrate_of_the_review_state_and_back(tmp_path: Path) -> None:
    """The drill of an operator, from 0.46 to the present format and back."""
    data, beside = tmp_path / "data", tmp_path / "backup"
    store, repository = data / "states.db", beside / "states.db"
    old = MIGRATION_PLAN.formats_from(Version(0, 46, 0))[0]
    write_version_markers(data, beside, "0.46.0")
    pystate.open(store, families=old).close()
    noted = run("backup", "create", store, repository).out.decode().strip()
    document = run("migrate", data, beside, "--dry-run", "--json").json
    assert (document["before"], document["version"]) == ("0.46.0", str(MIGRATION_PLAN.version))
    assert pystate.list_families(store) == tuple(sorted({*old, "default"}))
    run("migrate", data, beside)
    assert run("version", data, "--json").json["directories"][0]["marker"] == str(MIGRATION_PLAN.version)
    assert pystate.list_families(store) == tuple(sorted({*MIGRATION_PLAN.families, "default"}))
    run("rollback", data, beside, "--id", noted, "--version", "0.46.0")
    assert run("version", beside, "--json").json["directories"][0]["marker"] == "0.46.0"
    pystate.open(store, create=False, families=old).close()


@pytest.mark.usefixtures("planned")
def test_migrate_that_is_refused(data: Path, beside: Path, store: Path) -> None:
    with pystate.open(store):
        assert "held for writing" in run("migrate", data, beside, code=3).err
    write_version_markers(data, beside, "3.0.0")
    assert "3.0.0" in run("migrate", data, beside, code=5).err
    write_version_markers(data, beside, "1.0.0")
    store.rename(store.with_name("elsewhere"))
    assert "no store here" in run("migrate", data, beside, code=5).err


# -------------------------------------------------------------------------------------------------------- rollback


@pytest.mark.usefixtures("planned")
def test_rollback_undoes_an_update(data: Path, beside: Path, store: Path, repository: Path) -> None:
    """Check R230: with the id and the version that were noted."""
    noted = run("backup", "create", store, repository).out.decode().strip()
    run("migrate", data, beside)
    run("backup", "create", store, repository)
    shown = run("rollback", data, beside, "--id", noted, "--version", "1.0.0").out.decode()
    assert "markers written         1.0.0\n" in shown
    assert (got(store), str(read_version_marker(data)), str(read_version_marker(beside))) == (b"one", "1.0.0", "1.0.0")
    run("migrate", data, beside)
    document = run("rollback", data, beside, "--id", noted, "--json").json
    assert (document["backup"]["id"], document["backup"]["version"]) == (1, "1.0.0")
    assert (got(store), str(read_version_marker(data))) == (b"one", "1.0.0")


def test_rollback_that_is_refused_touches_nothing(data: Path, beside: Path, store: Path, repository: Path) -> None:
    run("backup", "create", store, repository)
    put(store, "newer")
    wrong = run("rollback", data, beside, "--id", "1", "--version", "1.0", code=2)
    assert "Nothing was done: give it with --version" in wrong.err
    assert "no backup 2" in run("rollback", data, beside, "--id", "2", code=5).err
    with pystate.open(store):
        assert run("rollback", data, beside, "--id", "1", code=3).out == b""
    assert "no backups here" in run("rollback", data, beside, "--id", "1", "--state", "other", code=5).err
    with pystate.memory() as other:
        backup.create(other, repository)
    assert "does not say which version" in run("rollback", data, beside, "--id", "2", code=2).err
    assert got(store) == b"newer"
    assert run("rollback", data, beside, "--id", "1").code == 0
    assert got(store) == b"one"


@pytest.mark.parametrize(
    "arguments",
    [
        ["get", "", "a"], ["stat", ""], ["salvage", "", "x"], ["review", "list", ""], ["version", ""],
        ["migrate", "", ""], ["backup", "list", ""], ["backup", "create", "s", ""],
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_empty_path_is_a_wrong_argument(arguments: list[str]) -> None:
    """As a script passes it whose variable is not set."""
    with pytest.raises(SystemExit) as stopped:
        build_parser().parse_args(arguments)
    assert stopped.value.code == 2
