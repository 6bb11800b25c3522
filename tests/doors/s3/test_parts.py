"""Parts of uploads, on disk."""

import errno
import os
from pathlib import Path

import pytest

from turnout.doors.s3.parts import About, NewPart, begin
from turnout.errors import Unavailable


def test_a_part_is_on_disk_before_it_is_in_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    upload = begin(tmp_path, About("b", "key", "p", "", {}, 0))
    part = NewPart(upload, 1)
    part.write(b"x" * 1000)

    def fails(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(Unavailable, match="part 1 cannot be kept: No space left"):
            part.commit()
    assert upload.parts() == []
    part.commit()
    assert [one.size for one in upload.parts()] == [1000]
