"""`Lifecycle`: what a host reports about a package, and the one place where it becomes a number and comes back.

Other programs number these states in other ways, and later versions may have more of them. So two rules hold. What
stands in a row is the position in the list below and nothing else: UNKNOWN is stored as 6, whatever its number is. And
whatever a row holds from 6 to 255 reads as UNKNOWN: a state that this version has no name for neither makes a record
unreadable nor passes for another state. `Lifecycle.to_stored_index` and `Lifecycle.from_stored_index` are the only
conversions.
"""

from __future__ import annotations

from pystate.review.stored import StoredEnum

__all__ = ["Lifecycle"]

_HIGHEST = 255
"""The highest number that a row may hold: one byte without sign."""


class Lifecycle(StoredEnum):
    """Whether a package is installed, and whether it runs. Says nothing about its `Status`.

    A record names its lifecycle always; there is no default.
    """

    NOT_INSTALLED = 0, 0
    INSTALLING = 1, 1
    RUNNING = 2, 2
    STOPPED = 3, 3
    FAILED = 4, 4
    REMOVING = 5, 5
    UNKNOWN = 6, 255

    def to_stored_index(self) -> int:
        """The number that is stored: the position in the list, so 6 for UNKNOWN."""
        stored: int = self.value
        return stored

    @classmethod
    def from_stored_index(cls, index: int) -> Lifecycle:
        """The state that a stored number means; UNKNOWN from 6 up.

        Raises:
            TypeError: it is no int. ValueError: it does not fit into one byte without sign.
        """
        if type(index) is not int:
            raise TypeError(f"a stored lifecycle is an int, not {type(index).__name__}")
        if not 0 <= index <= _HIGHEST:
            raise ValueError(f"a stored lifecycle is a number from 0 to {_HIGHEST}, not {index}")
        members = tuple(cls)
        return members[index] if index < len(members) else cls.UNKNOWN

    @classmethod
    def _missing_(cls, value: object) -> Lifecycle | None:
        """The state for a number that is not in the list: msgspec asks here when it reads a row."""
        return cls.from_stored_index(value) if type(value) is int and 0 <= value <= _HIGHEST else None
