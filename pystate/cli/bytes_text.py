"""Keys and values as one line of text, and back, without loss.

=====================  ============================================================================================
written                means
=====================  ============================================================================================
``0x`` and hex digits  these bytes, two digits each; ``0x`` alone is no bytes at all
``base64:`` and more   these bytes, in the standard base64 alphabet with padding
``text:`` and more     the rest as UTF-8, whatever it begins with
anything else          itself as UTF-8
=====================  ============================================================================================

:func:`format_bytes` picks the most readable form; :func:`parse_bytes` reads all of them, and
``parse_bytes(format_bytes(data)) == data`` for all bytes. What is formatted is one line, has no control characters, no
tab and no space at either end, and never begins with ``-``: it can stand in a column, and be given back as an argument.
"""

from __future__ import annotations

import binascii

__all__ = ["HEX_BYTES_MAX", "format_bytes", "parse_bytes"]

HEX_BYTES_MAX = 32
"""Up to this many bytes that are no text are shown as hex, more as base64."""

_HEX, _BASE64, _TEXT = "0x", "base64:", "text:"
_NEEDS_TEXT_PREFIX = (_HEX, _BASE64, _TEXT, "-")


def format_bytes(data: bytes) -> str:
    """Show bytes as one line of text that :func:`parse_bytes` turns back into the same bytes.

    Args:
        data: any bytes.

    Returns:
        Printable UTF-8 as it is (after ``text:`` where it would be read as something else), other bytes as ``0x…``,
        or as ``base64:…`` when they are more than :data:`HEX_BYTES_MAX`.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if text and text.isprintable() and text == text.strip():
        return _TEXT + text if text.startswith(_NEEDS_TEXT_PREFIX) else text
    if len(data) <= HEX_BYTES_MAX:
        return _HEX + data.hex()
    return _BASE64 + binascii.b2a_base64(data, newline=False).decode("ascii")


def parse_bytes(text: str, *, argument: bool = False) -> bytes:
    """Read the bytes that a text stands for.

    Args:
        text: any of the forms above.
        argument: the text is a command-line argument, in which Python marks bytes that are not UTF-8 by surrogates;
            they are taken as the bytes that were given.

    Returns:
        The bytes.

    Raises:
        ValueError: the text begins like hex or base64 and is not, or has surrogates that stand for no byte.
    """
    if text.startswith(_HEX):
        try:
            return binascii.unhexlify(text[len(_HEX) :])
        except ValueError:
            raise ValueError(
                f"{text!r} begins with 0x, but what follows is not hex digits in pairs; for this very text write "
                f"text:{text}"
            ) from None
    if text.startswith(_BASE64):
        try:
            return binascii.a2b_base64(text[len(_BASE64) :], strict_mode=True)
        except ValueError:
            raise ValueError(
                f"{text!r} begins with base64:, but what follows is not base64 with padding; for this very text write "
                f"text:{text}"
            ) from None
    try:
        return text.removeprefix(_TEXT).encode("utf-8", "surrogateescape" if argument else "strict")
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} is not valid Unicode text; give the bytes as 0x and hex digits") from None
