"""`Family`: a family of an open store, whose point read is the ``get`` of the live ``dict`` itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pystate.engine.family_state import FamilyState, Pair, Writes
from pystate.engine.limits import Buffer, as_key
from pystate.engine.mapping import FamilyWriter, check_limit, new_items, scan_bounds
from pystate.engine.scanning import scan_family
from pystate.engine.state import State
from pystate.errors import ClosedError, FamilyNotFoundError

__all__ = ["Family", "PutOne", "WriteBlind"]

T = TypeVar("T")

PutOne = Callable[[FamilyState, bool, bytes, bytes], None]
WriteBlind = Callable[[FamilyState, bool, Writes], None]


class Family(FamilyWriter):
    """A family of a store, as a mutable mapping in key order. Made by `Store.family`.

    Every write is one commit with the store's durability, and atomic: `pop`, `setdefault`, `update` and `clear` too.
    Threads may share a handle; a forked child may not use it.

    `get` is the ``get`` of the ``dict`` that holds the values (once the family has been touched), and costs what that
    costs. So it does not check its argument: what is not ``bytes`` is simply not there. Everything else does check.
    `put` is the committer's method for one operation, bound to this family, for the same reason.
    """

    __slots__ = ("_family", "_put_one", "_run", "_state", "_sync", "_write_blind", "get", "put")

    if TYPE_CHECKING:

        def put(self, key: Buffer, value: Buffer) -> None:
            """See `FamilyWriter.put`."""

    else:
        get: Callable[..., Any]
        put: Callable[..., None]

    def __init__(
        self,
        state: State,
        family: FamilyState,
        put_one: PutOne,
        write_blind: WriteBlind,
        run: Callable[[str, Callable[[FamilyWriter], Any]], Any],
        *,
        sync: bool,
    ) -> None:
        self._state = state
        self._family = family
        self._run = run
        self._sync = sync
        self._put_one = put_one
        self._write_blind = write_blind
        if family.loader is None:
            self._bind()
        else:

            def load_and_get(key: bytes, default: Any = None) -> Any:
                self._load()
                return self.get(key, default)

            def load_and_put(key: Buffer, value: Buffer) -> None:
                self._load()
                self.put(key, value)

            self.get = load_and_get  # type: ignore[method-assign]
            self.put = load_and_put  # type: ignore[method-assign]

    def _load(self) -> None:
        self._state.load(self._family)
        self._bind()
        if self._state.ended or self._family.dropped:  # looked at afterwards: `_end` may have been here at any moment
            self._end(self._raise_ended)

    def _raise_ended(self) -> NoReturn:
        if self._state.ended:
            raise ClosedError("store", self._state.ended[0])
        raise FamilyNotFoundError(self.name, tuple(sorted(self._state.families)))

    def _bind(self) -> None:
        """Point `get` and `put` at the loaded family."""
        self.get = self._family.values.get  # type: ignore[method-assign, assignment]
        self.put = partial(self._put_one, self._family, self._sync)  # type: ignore[method-assign]

    def _adopt(self, state: State, family: FamilyState) -> None:
        """Point the handle at another state; for a read-only store that had to read everything anew."""
        self.__init__(  # type: ignore[misc]
            state, family, self._put_one, self._write_blind, self._run, sync=self._sync
        )

    def _end(self, raise_error: Callable[[], NoReturn]) -> None:
        """Make every later use raise; for the store, when it closes or drops the family."""

        def ended(*_: object) -> NoReturn:
            raise_error()

        self.get = ended  # type: ignore[method-assign, assignment]
        self.put = ended  # type: ignore[method-assign, assignment]
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

    def delete(self, key: Buffer) -> None:
        key = as_key(key)
        self._check()
        self._write_blind(self._family, self._sync, {key: None})

    def update(self, other: Any = (), /, **keywords: Any) -> None:
        writes = new_items(other, keywords)
        self._check()
        if writes:
            self._write_blind(self._family, self._sync, writes)

    def delete_range(self, start: Buffer | None, stop: Buffer | None) -> None:
        bounds = scan_bounds(start, stop, None)
        self._atomically(lambda family: family.delete_range(bounds.low, bounds.high))

    def _atomically(self, action: Callable[[FamilyWriter], T]) -> T:
        result: T = self._run(self._family.name, action)
        return result
