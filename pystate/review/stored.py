"""What the records of the REview state are made of: enums with two numbers, checked ints and instants.

Every enum member has a *stored index*, its position in the declared order, which is its ``value`` and all that reaches
the disk; and a `number`, by which other systems know it and which is never stored. New members may only be appended.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Annotated, Self, TypeAlias

import msgspec

__all__ = ["I64", "U8", "U32", "Instant", "StoredEnum"]

U8: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 8) - 1)]
"""An int that fits into 8 bits without sign."""
U32: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
"""An int that fits into 32 bits without sign."""
I64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""An int that fits into 64 bits with sign."""
Instant: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""An aware ``datetime``, to the microsecond; read back as UTC."""


class StoredEnum(Enum):
    """An enum whose members are declared as ``NAME = stored index, number``.

    Attributes:
        number: by which other systems know the member; never stored.
    """

    number: int

    def __new__(cls, stored: int, number: int) -> StoredEnum:
        """A member with its stored index and its number; Enum calls this."""
        member = object.__new__(cls)
        member._value_ = stored
        member.number = number
        return member

    @property
    def text(self) -> str:
        """The name as other systems write it: lower case with underscores."""
        return self.name.lower()

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The member with this `text`.

        Raises:
            ValueError: there is none.
        """
        for each in cls:
            if each.text == text:
                return each
        raise ValueError(f"{text!r} is no {cls.__name__}; there are {', '.join(each.text for each in cls)}")
