"""Stores in other processes, for the tests that need a real one.

`Child` starts ``python -m tests.engine.children ROLE ARGUMENT...``; the functions below are the roles. A role talks in
lines of JSON: it is told on its standard input, and answers on its standard output.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pystate

ROOT = Path(__file__).parents[2]


class Child:
    """A running role, as the test sees it. Ends with the `with` statement, by force if need be."""

    def __init__(self, role: str, *arguments: object, options: tuple[str, ...] = (), **environment: str) -> None:
        command = [sys.executable, *options, "-m", "tests.engine.children", role, *map(str, arguments)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **environment}, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        self.pid = self.process.pid

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def tell(self, *message: object) -> None:
        """Send one message and do not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        """The next answer; a child that died instead shows what it said last."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate()
            raise AssertionError(f"the child ended with {self.process.returncode}: {errors}")
        return json.loads(line)

    def ask(self, *message: object) -> Any:
        """Send one message and wait for the answer."""
        self.tell(*message)
        return self.hear()

    def kill(self) -> str:
        """End it with SIGKILL, wait until it is gone, and return what it had still said."""
        self.process.send_signal(signal.SIGKILL)
        assert self.process.stdout is not None
        rest = self.process.stdout.read()
        self.process.wait()
        return rest

    def finish(self) -> tuple[int, str]:
        """Let it run to its end; its exit code and what it wrote to standard error."""
        _, errors = self.process.communicate()
        return self.process.returncode, errors


def say(message: object) -> None:
    """Answer, in one write, so that several threads may."""
    os.write(1, (json.dumps(message) + "\n").encode())


def heard() -> Iterator[list[Any]]:
    """The messages of the parent, until it closes the pipe."""
    for line in sys.stdin:
        yield json.loads(line)


def outcome(call: Callable[[], object]) -> str:
    """``"ok"``, or the name of the error that the call raised."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "ok"


# ---- roles ----------------------------------------------------------------------------------------------------------


def serve(path: str, *arguments: str) -> None:
    """Hold the store open and do as told; after the last message, close it."""
    with pystate.open(path, **json.loads(arguments[0] if arguments else "{}")) as store:
        say("open")
        for verb, *rest in heard():
            match verb:
                case "put":
                    name, key, value = rest
                    store.family(name)[key.encode()] = value.encode()
                case "count":
                    for number in range(rest[0]):
                        store.family("default")[b"%06d" % number] = b"v" * 50
                case "snapshot":
                    store.snapshot()
                case "create":
                    store.create_family(rest[0])
                case "drop":
                    store.drop_family(rest[0])
                case "close":
                    store.close()
                    say("closed")
                    continue
            say(store.sequence)


def hammer(path: str, durability: Literal["sync", "process"], threads: str) -> None:
    """Commit to three families from several threads for ever; say each commit once it is acknowledged."""
    families = ["last", "left", "right"]
    store = pystate.open(
        path, families=families, create_missing_families=True, durability=durability, snapshot_log_bytes=8192
    )
    say("open")

    def work(name: int) -> None:
        number = int(store.family("last").get(b"%d" % name) or b"0")
        while True:
            number += 1
            with store.begin() as txn:
                txn.put("last", b"%d" % name, b"%d" % number)
                txn.put("left", b"%d:%06d" % (name, number), b"l" * (number % 100))
                txn.put("right", b"%d:%06d" % (name, number), b"r" * (number % 100))
                if number > 50:
                    txn.delete("left", b"%d:%06d" % (name, number - 50))
                    txn.delete_range("right", b"%d:" % name, b"%d:%06d" % (name, number - 49))
            say([name, number])

    for name in range(int(threads)):
        threading.Thread(target=work, args=(name,), daemon=True).start()
    threading.Event().wait()


def create(path: str, name: str) -> None:
    """Wait for the word, open the store that may not exist yet, leave a mark in it."""
    say("ready")
    sys.stdin.readline()
    try:
        with pystate.open(path) as store:
            store.family("default")[b"first " + name.encode()] = b""
        first = "won"
    except pystate.LockedError:
        first = "locked"
    with pystate.open(path, lock_timeout=60.0) as store:
        store.family("default")[name.encode()] = b"v"
    say(first)


def migrate(path: str) -> None:
    """Wait for the word, then count once, if nobody has; say whether it was this one."""

    def build(rewriting: pystate.Rewriting) -> None:
        if rewriting.metadata["format"] == "1":
            family = rewriting.family("default")
            family[b"count"] = b"%d" % (int(family[b"count"]) + 1)
            rewriting.metadata["format"] = "2"

    say("ready")
    sys.stdin.readline()
    say(pystate.rewrite(path, build, lock_timeout=60.0).changed)


def fork(path: str, how: str) -> None:
    """Open, fork, let the child try everything and leave in one of several ways; then go on."""
    store = pystate.open(path, durability="process", snapshot_log_bytes=8192)
    family = store.family("default")
    family[b"before"] = b"v"
    txn = store.begin()
    txn.put("default", b"txn", b"v")
    child = os.fork()
    if child == 0:
        say(
            {
                "put": outcome(lambda: family.put(b"child", b"v")),
                "delete": outcome(lambda: family.delete(b"before")),
                "commit": outcome(txn.commit),
                "begin": outcome(lambda: store.transact(lambda txn: txn.put("default", b"child", b"v"))),
                "create": outcome(lambda: store.create_family("child")),
                "sync": outcome(store.sync),
                "snapshot": outcome(store.snapshot),
                "open": outcome(lambda: pystate.open(path)),
                "read": _read_by_itself(path),
            }
        )
        if how == "close":
            say(outcome(store.close))
        elif how == "hard":
            os._exit(0)
        elif how == "collect":
            del store, family, txn
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    say(status)
    for verb, *rest in heard():
        if verb == "put":
            family[rest[0].encode()] = b"v"
            say(store.sequence)
        else:
            say(outcome(store.close))


def _read_by_itself(path: str) -> object:
    with pystate.open(path, read_only=True) as reader:
        return {key.decode(): value.decode() for key, value in reader.family("default").items()}


def daemonise(path: str) -> None:
    """Open, fork a process that outlives this one, and leave without closing."""
    store = pystate.open(path)
    store.family("default")[b"before"] = b"v"
    if os.fork() == 0:
        refused = outcome(lambda: store.family("default").put(b"child", b"v"))
        say({"pid": os.getpid(), "put": refused})
        sys.stdin.readline()
        os._exit(0)
    os._exit(0)


def read_only(path: str) -> None:
    """Read a store that may not be written, as somebody who may not write it; then try to write all the same."""
    import filelock  # noqa: F401 - what is imported late may not be readable to the other user

    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    with pystate.open(path, read_only=True) as store:
        found = {key.decode(): value.decode() for key, value in store.family("default").items()}
        say([found, store.refresh(), outcome(lambda: store.family("default").put(b"k", b"v"))])
    say(outcome(lambda: pystate.open(path)))


def fill(path: str, limit: str) -> None:
    """Write until the size limit of a file is reached, and see what is left to do; then raise the limit."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    store = pystate.open(path, durability="process")
    family = store.family("default")
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), hard))
    number = 0
    while True:
        try:
            family[b"%06d" % number] = b"v" * 1000
        except pystate.DiskFullError as error:
            full = {"errno": error.errno, "path": error.path}
            break
        number += 1
    refused = outcome(lambda: store.transact(lambda txn: txn.put("default", b"large", b"v" * 100_000)))
    said = {
        **full,
        "count": number,
        "refused": refused,
        "failed": store.stats().failed,
        "sequence": store.sequence,
        "readable": len(family) == number and len(list(family.scan())) == number,
    }
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    family[b"after"] = b"v"
    said["after"] = outcome(store.close)
    say(said)


def leave(path: str, how: str) -> None:
    """End without closing anything."""
    store = pystate.open(path, durability="process" if how == "threads" else "sync", snapshot_log_bytes=8192)
    family = store.family("default")
    for number in range(300):
        family[b"%03d" % number] = b"v" * 50
    globals()["kept"] = [store, store.view(), store.begin(), family.scan(), iter(family), family.items()]
    next(globals()["kept"][3])
    if how == "threads":

        def work() -> None:
            number = 0
            while True:
                number += 1
                family[b"thread"] = b"%d" % number
                list(family.scan(limit=10))

        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
    elif how == "cycle":
        globals()["kept"].append(globals()["kept"])
    elif how == "exception":
        say("leaving")
        raise SystemExit(0)
    say("leaving")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
