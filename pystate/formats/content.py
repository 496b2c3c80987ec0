"""Which format the content of a store has, as the store itself says.

Promise: `FORMAT_KEY` is the key in the metadata of a store (`pystate.Store.metadata`) under which the version of its
content stands, as the text of a `Version`. It is in the same file as the content, so no crash divides the two.
"""

from __future__ import annotations

__all__ = ["FORMAT_KEY"]

FORMAT_KEY = "format"
"""The key in the metadata of a store."""
