"""Parts of uploads, on disk."""

import errno
import os
from pathlib import Path

import pytest

from turnout.errors import Unavailable
from turnout.gateways.s3.abandoned import clear
from turnout.gateways.s3.parts import NewPart, UploadInfo, begin


def test_a_part_is_on_disk_before_it_is_in_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    upload = begin(tmp_path, UploadInfo("b", "key", "p", "", {}, 0))
    part = NewPart(upload, 1)
    part.write(b"x" * 1000)

    def fails(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(Unavailable, match="part 1 cannot be stored: No space left"):
            part.commit()
    assert upload.parts() == []
    part.commit()
    assert [one.size for one in upload.parts()] == [1000]


def test_uploads_without_new_parts_are_removed(tmp_path: Path):
    old, fresh = (begin(tmp_path, UploadInfo("b", key, "p", "", {}, 0)) for key in ("old", "fresh"))
    for upload in (old, fresh):
        part = NewPart(upload, 1)
        part.write(b"x" * 1000)
        part.commit()
    os.utime(old.directory, (1000, 1000))
    other = tmp_path / "of-another-kind"
    other.touch()
    os.utime(other, (1000, 1000))
    size = sum(file.stat().st_size for file in old.directory.iterdir())
    assert clear(lambda: tmp_path, 2000, True) == (1, size)
    assert old.directory.exists()
    assert clear(lambda: tmp_path, 2000, False) == (1, size)
    assert set(tmp_path.iterdir()) == {fresh.directory, other}
    assert [one.size for one in fresh.parts()] == [1000]
    assert clear(lambda: tmp_path, 2000, False) == (0, 0)
