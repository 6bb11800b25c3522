"""The end of a log as JSON, encoded in chunks."""

import json
import random

import pytest

from turnout.dialects.modelarts.observe import logs


@pytest.mark.parametrize("seed", range(4))
def test_pieces_make_one_document(seed: int) -> None:
    """Characters that lie across two pieces, bytes that are none, quotes and control characters."""
    chosen = random.Random(seed)
    parts = ["€".encode(), "𝄞".encode(), b'"\\', b"\xff", b"\xe2\x82", b"\x00\n\t", b"line"]
    tail = b"".join(chosen.choices(parts, k=100_000))
    assert json.loads(logs.preview(tail, 1 << 40)) == {
        "content": tail.decode("utf-8", "replace"),
        "current_size": len(tail),
        "full_size": 1 << 40,
    }


def test_an_empty_log() -> None:
    assert json.loads(logs.preview(b"", 0)) == {"content": "", "current_size": 0, "full_size": 0}
