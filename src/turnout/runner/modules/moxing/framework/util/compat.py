"""Text and bytes."""

from __future__ import annotations

from typing import Union


def as_bytes(text: Union[str, bytes], encoding: str = "utf-8") -> bytes:
    return text.encode(encoding) if isinstance(text, str) else bytes(text)


def as_text(text: Union[str, bytes], encoding: str = "utf-8") -> str:
    return text if isinstance(text, str) else bytes(text).decode(encoding)


as_str = as_text
