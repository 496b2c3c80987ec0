"""`View`: the state of a store at one sequence, for reading, for as long as it is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType

from pystate.engine.family_state import FamilyState, Pair
from pystate.engine.limits import Buffer, check_family_name
from pystate.engine.mapping import FamilyReader, check_limit, scan_bounds
from pystate.engine.scanning import scan_family
from pystate.engine.state import Pin, State
from pystate.errors import ClosedError, FamilyNotFoundError

__all__ = ["View", "ViewFamily", "family_name", "find_family"]


class View:
    """A consistent read of all families at one sequence. Made by `Store.view`; a context manager.

    While a view is open, commits keep what they overwrite for it, so close it when done. Past the history limit it
    fails with `ConflictError` (``too_old``). Threads may share it; a forked child may not use it.
    """

    __slots__ = ("__weakref__", "_check_store", "_ended", "_families", "_handles", "_pin", "_sequence", "_state")

    def __init__(self, state: State, check_store: Callable[[], None]) -> None:
        self._state = state
        self._check_store = check_store
        with state.lock:
            self._pin: Pin | None = state.pin_locked()
            self._families: Mapping[str, FamilyState] = state.families
            self._sequence = self._pin.sequence
        self._ended: list[str] = []
        self._handles: dict[str, ViewFamily] = {}

    @property
    def sequence(self) -> int:
        """The last commit that this view shows."""
        return self._sequence

    @property
    def families(self) -> tuple[str, ...]:
        """The names of the families at that sequence, sorted."""
        self._check()
        return tuple(sorted(self._families))

    def family(self, name: str) -> ViewFamily:
        """A family as a read-only mapping.

        Raises:
            FamilyNotFoundError: it did not exist at that sequence.
            CorruptionError: its part of the snapshot is damaged.
            ClosedError: the view or the store is closed.
        """
        self._check()
        handle = self._handles.get(name)
        if handle is None:
            family = find_family(self._families, name)
            self._state.load(family)
            handle = self._handles[name] = ViewFamily(self, family)
        return handle

    def get(self, family: str | FamilyReader, key: Buffer, default: bytes | None = None) -> bytes | None:
        """``view.family(family).get(key, default)``."""
        return self.family(family_name(family)).get(key, default)  # type: ignore[arg-type]

    def scan(
        self,
        family: str | FamilyReader,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[Pair]:
        """``view.family(family).scan(...)``."""
        return self.family(family_name(family)).scan(start, stop, prefix=prefix, reverse=reverse, limit=limit)

    def close(self) -> None:
        """Stop reading, so that old values need not be kept; may be called twice."""
        pin, self._pin = self._pin, None
        if pin is not None:
            self._ended.append("is closed; take a new one with store.view()")
            self._state.end_scans(self._ended)
            pin.release()

    def _check(self) -> None:
        """Raise ClosedError unless view and store are open."""
        self._check_store()
        if self._pin is None:
            raise ClosedError("view", self._ended[0])

    def __repr__(self) -> str:
        return f"<View: sequence {self._sequence}{', closed' if self._ended else ''}>"

    def __enter__(self) -> View:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ViewFamily(FamilyReader):
    """A family as of a view."""

    __slots__ = ("_family", "_view")

    def __init__(self, view: View, family: FamilyState) -> None:
        self._view = view
        self._family = family

    @property
    def name(self) -> str:
        return self._family.name

    def _read(self, key: bytes) -> bytes | None:
        self._view._check()
        return self._view._state.get(self._family, key, self._view._pin)  # type: ignore[arg-type]  # checked just now

    def scan(
        self,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[Pair]:
        view, bounds = self._view, scan_bounds(start, stop, prefix)
        limit = check_limit(limit)
        view._check()
        return scan_family(
            view._state, self._family, bounds, view._pin, view._check, view._ended, reverse=reverse, limit=limit
        )

    def __len__(self) -> int:
        self._view._check()
        return self._view._state.count(self._family, self._view._pin)


def family_name(family: str | FamilyReader) -> str:
    """The name, whether a name or a handle was given."""
    return family.name if isinstance(family, FamilyReader) else family


def find_family(families: Mapping[str, FamilyState], name: str) -> FamilyState:
    """The family of that name.

    Raises:
        FamilyNotFoundError: there is none. TypeError, ValueError: it cannot be a name.
    """
    family = families.get(name) if type(name) is str else None  # its characters were checked when it was made
    if family is None:
        check_family_name(name)
        raise FamilyNotFoundError(name, tuple(sorted(families)))
    return family
