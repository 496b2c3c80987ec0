"""`Family`: a family of an open store, whose point read is the ``get`` of the live ``dict`` itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pystate.engine.family_state import FamilyState, Pair
from pystate.engine.limits import Buffer, as_key, as_value
from pystate.engine.mapping import FamilyWriter, check_limit, scan_bounds
from pystate.engine.scanning import scan_family
from pystate.engine.state import State

__all__ = ["Family", "WriteOne"]

T = TypeVar("T")

WriteOne = Callable[[FamilyState, bytes, bytes | None, bool], object]


class Family(FamilyWriter):
    """A family of a store, as a mutable mapping in key order. Made by `Store.family`.

    Every write is one commit with the store's durability, and atomic: `pop`, `setdefault`, `update` and `clear` too.
    Threads may share a handle; a forked child may not use it.

    `get` is the ``get`` of the ``dict`` that holds the values (once the family has been touched), and costs what that
    costs. So it does not check its argument: what is not ``bytes`` is simply not there. Everything else does check.
    """

    __slots__ = ("_family", "_run", "_state", "_sync", "_write_one", "get")

    if not TYPE_CHECKING:
        get: Callable[..., Any]

    def __init__(
        self,
        state: State,
        family: FamilyState,
        write_one: WriteOne,
        run: Callable[[str, Callable[[FamilyWriter], Any]], Any],
        *,
        sync: bool,
    ) -> None:
        self._state = state
        self._family = family
        self._run = run
        self._sync = sync
        if family.loader is None:
            self._bind(write_one)
        else:

            def load_and_get(key: bytes, default: Any = None) -> Any:
                self._load(write_one)
                return self.get(key, default)

            def load_and_write(family: FamilyState, key: bytes, value: bytes | None, sync: bool) -> object:
                self._load(write_one)
                return self._write_one(family, key, value, sync)

            self.get = load_and_get  # type: ignore[method-assign]
            self._write_one: WriteOne = load_and_write

    def _load(self, write_one: WriteOne) -> None:
        self._state.load(self._family)
        self._bind(write_one)

    def _bind(self, write_one: WriteOne) -> None:
        """Point `get` at the live values; for the store, which does so again when it replaces them."""
        self.get = self._family.values.get  # type: ignore[method-assign, assignment]
        self._write_one = write_one

    def _adopt(self, state: State, family: FamilyState, write_one: WriteOne) -> None:
        """Point the handle at another state; for a read-only store that had to read everything anew."""
        self.__init__(state, family, write_one, self._run, sync=self._sync)  # type: ignore[misc]

    def _end(self, raise_error: Callable[[], NoReturn]) -> None:
        """Make every later use raise; for the store, when it closes or drops the family."""

        def ended(*_: object) -> NoReturn:
            raise_error()

        self.get = ended  # type: ignore[method-assign, assignment]
        self._write_one = ended
        self._run = ended

    @property
    def name(self) -> str:
        return self._family.name

    def _read(self, key: bytes) -> bytes | None:
        return self.get(key)

    def __len__(self) -> int:
        self.get(b"")  # loaded and open?
        return self._state.count(self._family, None)

    def scan(
        self,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[Pair]:
        bounds = scan_bounds(start, stop, prefix)
        limit = check_limit(limit)
        self._check()
        return scan_family(
            self._state, self._family, bounds, None, self._check, self._state.ended, reverse=reverse, limit=limit
        )

    def _check(self) -> None:
        self.get(b"")

    def put(self, key: Buffer, value: Buffer) -> None:
        if type(key) is not bytes or type(value) is not bytes:
            key, value = as_key(key), as_value(value)
        self._write_one(self._family, key, value, self._sync)

    def delete(self, key: Buffer) -> None:
        self._write_one(self._family, as_key(key), None, self._sync)

    def delete_range(self, start: Buffer | None, stop: Buffer | None) -> None:
        bounds = scan_bounds(start, stop, None)
        self._atomically(lambda family: family.delete_range(bounds.low, bounds.high))

    def _atomically(self, action: Callable[[FamilyWriter], T]) -> T:
        result: T = self._run(self._family.name, action)
        return result
