"""A store that is nothing but plain dicts, to compare the real one with.

`ModelFamily` has the interface of a family and does everything the slow and obvious way. An `Operation` runs on a real
family and on a model alike and gives a result that compares equal; it also says which keys its result depended on and
which it wrote, so that `ModelTransaction` can tell when a commit has to conflict and when it must not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal, Protocol

from hypothesis import strategies as st

#: Half-open range of keys; None is no bound. A single key `k` is ``(k, k + b"\\0")``.
Range = tuple[bytes | None, bytes | None]
#: What a transaction depends on, or what a commit changes: ranges of keys by family.
Footprint = list[tuple[str, Range]]
State = dict[str, dict[bytes, bytes]]
Durability = Literal["sync", "process"]


class ReadLike(Protocol):
    """What a reading operation needs of a family, real or model."""

    def get(self, key: bytes, /) -> bytes | None: ...
    def keys(self) -> Iterable[bytes]: ...
    def values(self) -> Iterable[bytes]: ...
    def items(self) -> Iterable[tuple[bytes, bytes]]: ...
    def scan(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]: ...
    def __getitem__(self, key: bytes, /) -> bytes: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __reversed__(self) -> Iterator[bytes]: ...


class FamilyLike(ReadLike, Protocol):
    """What any operation needs of a family, real or model."""

    def put(self, key: bytes, value: bytes, /) -> None: ...
    def delete(self, key: bytes, /) -> None: ...
    def delete_range(self, start: bytes | None, stop: bytes | None, /) -> None: ...
    def pop(self, key: bytes, default: bytes | None, /) -> bytes | None: ...
    def popitem(self) -> tuple[bytes, bytes]: ...
    def setdefault(self, key: bytes, default: bytes, /) -> bytes: ...
    def update(self, pairs: Mapping[bytes, bytes], /) -> None: ...
    def clear(self) -> None: ...
    def __setitem__(self, key: bytes, value: bytes, /) -> None: ...
    def __delitem__(self, key: bytes, /) -> None: ...


def selected(
    state: Mapping[bytes, bytes],
    start: bytes | None = None,
    stop: bytes | None = None,
    *,
    prefix: bytes | None = None,
    reverse: bool = False,
    limit: int | None = None,
) -> list[tuple[bytes, bytes]]:
    """The oracle of every scan: filter, sort, turn round, cut."""
    keys = sorted(
        key
        for key in state
        if (start is None or key >= start)
        and (stop is None or key < stop)
        and (prefix is None or key.startswith(prefix))
    )
    if reverse:
        keys.reverse()
    return [(key, state[key]) for key in keys[:limit]]


class ModelFamily(MutableMapping[bytes, bytes]):
    """A family that is a dict, sorted anew whenever order matters."""

    def __init__(self, state: dict[bytes, bytes]) -> None:
        self.state = state

    def __getitem__(self, key: bytes) -> bytes:
        return self.state[key]

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.state[key] = value

    def __delitem__(self, key: bytes) -> None:
        del self.state[key]

    def __iter__(self) -> Iterator[bytes]:
        return iter(sorted(self.state))

    def __reversed__(self) -> Iterator[bytes]:
        return iter(sorted(self.state, reverse=True))

    def __len__(self) -> int:
        return len(self.state)

    def put(self, key: bytes, value: bytes) -> None:
        self.state[key] = value

    def delete(self, key: bytes) -> None:
        self.state.pop(key, None)

    def delete_range(self, start: bytes | None, stop: bytes | None) -> None:
        for key, _ in selected(self.state, start, stop):
            del self.state[key]

    def scan(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        return iter(selected(self.state, start, stop, prefix=prefix, reverse=reverse, limit=limit))


def single(key: bytes) -> Range:
    """The range that holds this key and no other."""
    return key, key + b"\0"


def overlap(one: Range, other: Range) -> bool:
    """Whether some key lies in both ranges."""
    starts = [bound for bound in (one[0], other[0]) if bound is not None]
    stops = [bound for bound in (one[1], other[1]) if bound is not None]
    return not stops or max(starts, default=b"") < min(stops)


def touches(one: Footprint, other: Footprint) -> bool:
    """Whether two footprints have a key of one family in common."""
    return any(f == g and overlap(r, s) for f, r in one for g, s in other)


def prefix_range(prefix: bytes) -> Range:
    """The keys that begin with `prefix`, as a range."""
    head = prefix.rstrip(b"\xff")
    return prefix, (head[:-1] + bytes([head[-1] + 1]) if head else None)


@dataclass(frozen=True)
class Operation:
    """One call on a family. `run` gives something comparable, with KeyError as a result like any other."""

    def run(self, family: FamilyLike) -> object:
        raise NotImplementedError

    def reads(self, result: object) -> list[Range]:
        """The ranges that `result` depended on, at most."""
        return []

    def writes(self, result: object, before: Mapping[bytes, bytes]) -> list[Range]:
        """The ranges that the call wrote to, at most; `before` is the family as it was."""
        return []


class Reading(Operation):
    """A call that only reads, so that a view can run it too."""

    def run(self, family: ReadLike) -> object:
        raise NotImplementedError


def _or_key_error(call: Callable[[], object]) -> object:
    try:
        return call()
    except KeyError as error:
        if type(error) is not KeyError:
            raise
        return KeyError


@dataclass(frozen=True)
class Get(Reading):
    key: bytes

    def run(self, family: ReadLike) -> object:
        return family.get(self.key)

    def reads(self, result: object) -> list[Range]:
        return [single(self.key)]


@dataclass(frozen=True)
class Item(Get):
    def run(self, family: ReadLike) -> object:
        return _or_key_error(lambda: family[self.key])


@dataclass(frozen=True)
class Has(Get):
    def run(self, family: ReadLike) -> object:
        return self.key in family


@dataclass(frozen=True)
class Length(Reading):
    def run(self, family: ReadLike) -> object:
        return len(family)

    def reads(self, result: object) -> list[Range]:
        return [(None, None)]


@dataclass(frozen=True)
class Listing(Reading):
    """The whole family, one way or another."""

    how: str

    def run(self, family: ReadLike) -> object:
        match self.how:
            case "iter":
                return list(family)
            case "reversed":
                return list(reversed(family))
            case "keys":
                return list(family.keys())
            case "values":
                return list(family.values())
            case _:
                return list(family.items())

    def reads(self, result: object) -> list[Range]:
        return [(None, None)]


@dataclass(frozen=True)
class Scan(Reading):
    """A scan of which only `take` entries are asked for (all of it when None)."""

    start: bytes | None = None
    stop: bytes | None = None
    prefix: bytes | None = None
    reverse: bool = False
    limit: int | None = None
    take: int | None = None

    def run(self, family: ReadLike) -> object:
        scan = family.scan(self.start, self.stop, prefix=self.prefix, reverse=self.reverse, limit=self.limit)
        return list(islice(scan, self.take))

    def reads(self, result: object) -> list[Range]:
        assert isinstance(result, list)
        start, stop = self.start, self.stop
        if self.prefix is not None:
            low, high = prefix_range(self.prefix)
            start = low if start is None or low is not None and low > start else start
            stop = high if stop is None or high is not None and high < stop else stop
        wanted = min((n for n in (self.limit, self.take) if n is not None), default=None)
        if wanted is not None and len(result) >= wanted:  # stopped before the end of the range was seen
            if not result:
                return []
            last = result[-1][0]
            start, stop = (last, stop) if self.reverse else (start, last + b"\0")
        return [(start, stop)]


@dataclass(frozen=True)
class Put(Operation):
    key: bytes
    value: bytes

    def run(self, family: FamilyLike) -> object:
        family.put(self.key, self.value)
        return None

    def writes(self, result: object, before: Mapping[bytes, bytes]) -> list[Range]:
        return [single(self.key)]


@dataclass(frozen=True)
class SetItem(Put):
    def run(self, family: FamilyLike) -> object:
        family[self.key] = self.value
        return None


@dataclass(frozen=True)
class Update(Operation):
    pairs: tuple[tuple[bytes, bytes], ...]

    def run(self, family: FamilyLike) -> object:
        family.update(dict(self.pairs))
        return None

    def writes(self, result: object, before: Mapping[bytes, bytes]) -> list[Range]:
        return [single(key) for key, _ in self.pairs]


@dataclass(frozen=True)
class Delete(Operation):
    key: bytes

    def run(self, family: FamilyLike) -> object:
        family.delete(self.key)
        return None

    def writes(self, result: object, before: Mapping[bytes, bytes]) -> list[Range]:
        return [single(self.key)]


@dataclass(frozen=True)
class DeleteItem(Operation):
    key: bytes

    def run(self, family: FamilyLike) -> object:
        return _or_key_error(lambda: family.__delitem__(self.key))

    def reads(self, result: object) -> list[Range]:
        return [single(self.key)]

    def writes(self, result: object, before: Mapping[bytes, bytes]) -> list[Range]:
        return [] if result is KeyError else [single(self.key)]


@dataclass(frozen=True)
class Pop(Operation):
    key: bytes

    def run(self, family: FamilyLike) -> object:
        return family.pop(self.key, None)

    def reads(self, result: object) -> list[Range]:
        return [single(self.key)]

    def writes(self, result: object, before: Mapping[bytes, bytes]) -> list[Range]:
        return [] if result is None else [single(self.key)]


@dataclass(frozen=True)
class SetDefault(Operation):
    key: bytes
    value: bytes

    def run(self, family: FamilyLike) -> object:
        return family.setdefault(self.key, self.value)

    def reads(self, result: object) -> list[Range]:
        return [single(self.key)]

    def writes(self, result: object, before: Mapping[bytes, bytes]) -> list[Range]:
        return [] if self.key in before else [single(self.key)]


@dataclass(frozen=True)
class PopItem(Operation):
    def run(self, family: FamilyLike) -> object:
        return _or_key_error(family.popitem)

    def reads(self, result: object) -> list[Range]:
        return [(None, None)]

    def writes(self, result: object, before: Mapping[bytes, bytes]) -> list[Range]:
        return [single(result[0])] if isinstance(result, tuple) else []


@dataclass(frozen=True)
class DeleteRange(Operation):
    """A store may read a range in order to delete it, and writes only what it finds there."""

    start: bytes | None
    stop: bytes | None

    def run(self, family: FamilyLike) -> object:
        family.delete_range(self.start, self.stop)
        return None

    def reads(self, result: object) -> list[Range]:
        return [(self.start, self.stop)]

    def writes(self, result: object, before: Mapping[bytes, bytes]) -> list[Range]:
        return [single(key) for key, _ in selected(before, self.start, self.stop)]


@dataclass(frozen=True)
class Clear(Operation):
    def run(self, family: FamilyLike) -> object:
        family.clear()
        return None

    def reads(self, result: object) -> list[Range]:
        return [(None, None)]

    def writes(self, result: object, before: Mapping[bytes, bytes]) -> list[Range]:
        return [single(key) for key in before]


class Model:
    """The whole store as dicts of dicts, with what each commit changed."""

    def __init__(self, families: Iterable[str] = ("default",)) -> None:
        self.families: State = {name: {} for name in families}
        self.sequence = 0
        self.commits: list[tuple[int, Footprint]] = []

    def copy(self) -> State:
        return {name: dict(entries) for name, entries in self.families.items()}

    def commit(self, sequence: int, families: State, changed: Footprint) -> None:
        """Take over the state after a commit; one that changed nothing may have been given no sequence."""
        assert sequence in (self.sequence, self.sequence + 1)
        assert sequence > self.sequence or families == self.families
        self.families, self.sequence = families, sequence
        self.commits.append((sequence, changed))

    def changed_since(self, sequence: int) -> Footprint:
        return [entry for number, changed in self.commits if number > sequence for entry in changed]


class ModelTransaction:
    """What a transaction should see, and whether its commit should succeed."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.begin = model.sequence
        self.before = model.copy()
        self.state = model.copy()
        self.journal: list[tuple[str, Operation, object]] = []
        self.read: Footprint = []
        self.written: Footprint = []

    def run(self, name: str, operation: Operation) -> object:
        before = dict(self.state[name])
        result = operation.run(ModelFamily(self.state[name]))
        for span in operation.reads(result):
            if not self._own(name, span):
                self.read.append((name, span))
        self.written += [(name, span) for span in operation.writes(result, before)]
        self.journal.append((name, operation, result))
        return result

    def _own(self, name: str, span: Range) -> bool:
        """Whether a single key was written by this very transaction: reading it back depends on nobody."""
        return span[0] is not None and span == single(span[0]) and touches([(name, span)], self.written)

    @property
    def may_conflict(self) -> bool:
        """Something that was read lies where a commit since then has written, so a conflict is no surprise."""
        return bool(self.written) and touches(self.read, self.model.changed_since(self.begin))

    @property
    def must_conflict(self) -> bool:
        """Run now, after all that was committed since, the transaction would have seen something else."""
        return bool(self.written) and self.replayed() is None

    def replayed(self) -> State | None:
        """The state after running the transaction on the newest state, or None if it would see something else."""
        state = self.model.copy()
        for name, operation, result in self.journal:
            if name not in state or operation.run(ModelFamily(state[name])) != result:
                return None
        return state


#: Few and short keys, so that operations meet; bytes at both ends of the range, so that bounds are tried.
keys = st.lists(st.sampled_from([0x00, 0x61, 0x62, 0xFE, 0xFF]), max_size=3).map(bytes)
bounds = st.none() | keys
values = st.sampled_from([b"", b"\0", b"one", b"two", b"three" * 5])
scans = st.builds(
    Scan,
    bounds,
    bounds,
    prefix=bounds,
    reverse=st.booleans(),
    limit=st.none() | st.integers(0, 5),
    take=st.none() | st.integers(0, 5),
)
readings: st.SearchStrategy[Reading] = st.one_of(
    st.builds(Get, keys),
    st.builds(Item, keys),
    st.builds(Has, keys),
    scans,
    st.just(Length()),
    st.builds(Listing, st.sampled_from(["iter", "reversed", "keys", "values", "items"])),
)
writings: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Put, keys, values),
    st.builds(SetItem, keys, values),
    st.builds(Delete, keys),
    st.builds(DeleteItem, keys),
    st.builds(Pop, keys),
    st.builds(SetDefault, keys, values),
    st.builds(Update, st.lists(st.tuples(keys, values), max_size=4).map(tuple)),
    st.builds(DeleteRange, bounds, bounds),
    st.just(PopItem()),
    st.just(Clear()),
)
operations: st.SearchStrategy[Operation] = readings | writings
