"""What agents and external services have in common: `Status`, `Config`, and how a configuration is stored.

A configuration is checked when it is made from text, never when it is read: a row stays readable whatever was stored
in it. So a `Config` is either what somebody has checked, or what a row held.
"""

from __future__ import annotations

import tomllib
from typing import Any, TypeAlias, TypeVar

import msgspec

from pystate.errors import InvalidConfigError
from pystate.review.stored import StoredEnum
from pystate.tables import Key, PositionalValue, Readable, Scannable, Writable

__all__ = ["BoundAddrs", "Config", "ConfigValue", "NodePackages", "Status", "freeze_bound_addrs"]

R = TypeVar("R")

BoundAddrs: TypeAlias = tuple[tuple[str, str], ...]
"""Where a package listens: pairs of a configuration key and "host:port", in the order in which they were reported."""


class Status(StoredEnum):
    """How the last reload of the configuration went. Says nothing about the `Lifecycle`."""

    DISABLED = 0, 0
    ENABLED = 1, 1
    RELOAD_FAILED = 2, 2
    UNKNOWN = 3, 255


class Config(str):
    """The text of a TOML document, character by character as it was given.

    A ``str`` in every respect. What is made from it with the methods of ``str`` is a plain ``str`` again, to be checked
    anew.

    Raises:
        TypeError: it is made from something that is no text.
        InvalidConfigError: it is made from text that is no TOML document, or that cannot be written as UTF-8.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Config:
        """Check `text`; the result equals it."""
        if not isinstance(text, str):
            raise TypeError(f"a configuration is text, not {type(text).__name__}")
        _check(text)
        return cls.from_stored(text)

    @classmethod
    def from_stored(cls, text: str) -> Config:
        """What a row held, unchecked. For reading and migrating rows only."""
        return str.__new__(cls, text)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Config.from_stored, (str(self),))  # so that a copy of what a row held needs no check either


def _check(text: str) -> None:
    try:
        text.encode()
        tomllib.loads(text)
    except UnicodeEncodeError as error:
        raise InvalidConfigError(f"it cannot be written as UTF-8 ({error.reason} at character {error.start})") from None
    except RecursionError:
        raise InvalidConfigError("it is nested too deeply") from None
    except ValueError as error:  # of tomllib, or of an int with more digits than Python reads
        raise InvalidConfigError(str(error)) from None


class ConfigValue(PositionalValue[R]):
    """The value of a record with fields of type ``Config | None``, each stored as plain text.

    Arguments:
        kind, key: as for `PositionalValue`.
        configs: the names of these fields.
    """

    __slots__ = ("_configs",)

    def __init__(self, kind: type[R], key: Key, *configs: str) -> None:
        super().__init__(kind, key, dec_hook=_read_config)
        self._configs = configs

    def encode(self, record: R) -> bytes:
        texts = {}
        for field in self._configs:
            config = getattr(record, field)
            if config is None:
                continue
            if type(config) is not Config:
                raise ValueError(f"field {field!r}: a Config or None expected, not {type(config).__name__}")
            texts[field] = str(config)
        return super().encode(msgspec.structs.replace(record, **texts) if texts else record)  # type: ignore[type-var]


def _read_config(kind: type, found: object) -> Config:
    """What msgspec makes of a field of type `Config`."""
    if type(found) is not str:
        raise ValueError(f"Expected `str | null`, got `{type(found).__name__}`")  # as msgspec says it
    return Config.from_stored(found)


def freeze_bound_addrs(package: Any) -> None:
    """Make tuples of the addresses of a record just made, should they have been given as lists."""
    given: object = package.bound_addrs
    if type(given) is list:
        pairs = tuple(tuple(pair) if type(pair) is list else pair for pair in given)
        msgspec.structs.force_setattr(package, "bound_addrs", pairs)


class NodePackages(Readable[R], Scannable[R], Writable[R]):
    """The packages of nodes, by node and key: what the tables of agents and of external services have in common.

    Those of one node are ``packages.iter(prefix=(node_id,))``.
    """

    __slots__ = ()

    def get(self, node_id: int, key: str) -> R | None:
        """The package of this node with this key, or None.

        Raises:
            DecodeError: the row cannot be read. TypeError, ValueError: `node_id` is no unsigned 32-bit int, or `key` no
            text that UTF-8 can hold.
        """
        return super().get(node_id, key)

    def delete(self, node_id: int, key: str) -> None:
        """Delete the package of this node with this key; no error when there is none, or when it cannot be read.

        Raises:
            TypeError, ValueError: see `get`.
        """
        super().delete(node_id, key)
