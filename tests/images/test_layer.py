"""Layers: what overlayfs reads, and what a hostile one cannot do."""

import io
import os
import stat
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.images.oci import Layer
from turnout.images.layer import Applied, LayerLimits, apply
from turnout.images.tar import BadLayer

LIMITS = LayerLimits(1 << 20, 100)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The directory of the layer, with a file beside it that no layer may reach."""
    (tmp_path / "outside").write_text("untouched")
    (tmp_path / "layer").mkdir()
    return tmp_path / "layer"


def unpack(layer: Layer | bytes, root: Path, limits: LayerLimits = LIMITS) -> Applied:
    data = layer.tar if isinstance(layer, Layer) else layer
    directory = os.open(root, os.O_RDONLY)
    try:
        return apply(io.BytesIO(data), directory, limits)
    finally:
        os.close(directory)


def is_whiteout(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def is_opaque(path: Path) -> bool:
    return "user.overlay.opaque" in os.listxattr(path)


def test_files_directories_and_links(root: Path):
    layer = Layer().directory("usr", 0o755).directory("usr/bin", 0o700).file("usr/bin/tool", "x", 0o750)
    layer.link("bin", "/usr/bin").link("up", "../../../etc/passwd").hard_link("usr/bin/other", "usr/bin/tool")
    layer.file("deep/without/entries", "y").file("usr/bin/tool2", "z" * 5000, 0o000)
    done = unpack(layer, root)
    assert (root / "usr/bin/tool").read_text() == "x"
    assert (root / "usr/bin/other").samefile(root / "usr/bin/tool")
    assert os.readlink(root / "bin") == "/usr/bin"
    assert os.readlink(root / "up") == "../../../etc/passwd"
    modes = {
        name: stat.S_IMODE((root / name).stat().st_mode) for name in ("usr", "usr/bin/tool", "usr/bin/tool2")
    }
    assert modes == {"usr": 0o755, "usr/bin/tool": 0o750, "usr/bin/tool2": 0o600}
    times = {(root / name).lstat().st_mtime for name in ("usr", "usr/bin", "usr/bin/tool", "bin")}
    assert times == {1_600_000_000}
    assert done.files == 8
    assert done.bytes >= 4096 * 5
    assert done.skipped == []


def test_names_that_are_not_utf_8_and_long_ones(root: Path):
    info = tarfile.TarInfo("caf\udce9")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as tar:
        tar.addfile(info)
        tar.addfile(tarfile.TarInfo("/".join(["n" * 90] * 3)))
    unpack(data.getvalue(), root)
    assert b"caf\xe9" in os.listdir(os.fsencode(root))
    assert (root / "/".join(["n" * 90] * 3)).is_file()


def test_a_whiteout_hides_what_is_below(root: Path):
    unpack(Layer().directory("etc").file("etc/.wh.passwd").file(".wh.opt"), root)
    assert is_whiteout(root / "etc/passwd")
    assert is_whiteout(root / "opt")
    assert not (root / "etc/.wh.passwd").exists()


def test_an_opaque_directory(root: Path):
    done = unpack(Layer().directory("etc").file("etc/.wh..wh..opq").file("etc/hosts"), root)
    assert is_opaque(root / "etc")
    assert not done.opaque
    assert os.listdir(root / "etc") == ["hosts"]


def test_an_opaque_root_hides_all_layers_below(root: Path):
    assert unpack(Layer().file(".wh..wh..opq").file("only"), root).opaque


@pytest.mark.parametrize("whiteout_first", [True, False])
def test_a_directory_that_replaces_another_is_opaque(root: Path, whiteout_first: bool):
    layer = Layer()
    if whiteout_first:
        layer.file(".wh.lib")
    layer.directory("lib").file("lib/new")
    if not whiteout_first:
        layer.file(".wh.lib")
    unpack(layer, root)
    assert is_opaque(root / "lib")
    assert (root / "lib/new").is_file()


def test_a_whiteout_does_not_hide_a_file_of_its_own_layer(root: Path):
    unpack(Layer().file("kept", "new").file(".wh.kept").file(".wh..wh.plnk"), root)
    assert (root / "kept").read_text() == "new"
    assert os.listdir(root) == ["kept"]


def test_the_kernel_reads_it_as_it_was_meant(root: Path, tmp_path: Path):
    """An overlay in a user namespace, as jobs get one."""
    below = tmp_path / "below"
    below.mkdir()
    unpack(Layer().file("gone").file("kept").directory("dir").file("dir/old"), below)
    unpack(Layer().file(".wh.gone").directory("dir").file("dir/.wh..wh..opq").file("dir/new"), root)
    merged = tmp_path / "merged"
    merged.mkdir()
    script = f"mount -t overlay overlay -o userxattr,lowerdir={root}:{below} {merged} && cd {merged} && ls *"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
    )
    if "permitted" in done.stderr:
        pytest.skip("this machine has no user namespaces")
    assert done.stdout.split() == ["kept", "dir:", "new"]


def test_rights_of_owners_devices_and_attributes_are_left_out(root: Path):
    layer = Layer().file("su", "x", 0o6755).directory("tmp", 0o1777)
    layer.entry("null", tarfile.CHRTYPE, 0o666).entry("disk", tarfile.BLKTYPE, 0o600).entry(
        "pipe", tarfile.FIFOTYPE, 0o600
    )
    done = unpack(layer, root)
    assert stat.S_IMODE((root / "su").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "tmp").stat().st_mode) == 0o777
    assert sorted(os.listdir(root)) == ["su", "tmp"]
    assert [line.partition(":")[0] for line in done.skipped] == ["'null'", "'disk'", "'pipe'"]


def test_attributes_of_an_overlay_are_left_out(root: Path):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("file")
        info.pax_headers = {
            "SCHILY.xattr.user.overlay.redirect": "/etc",
            "SCHILY.xattr.security.capability": "x",
        }
        tar.addfile(info)
    unpack(data.getvalue(), root)
    assert os.listxattr(root / "file") == []


HOSTILE: dict[str, tuple[Callable[[], Layer], str]] = {
    "a name that leads out": (lambda: Layer().file("../outside", "hacked"), "leads out of it"),
    "a name that leads out later": (lambda: Layer().file("a/../../outside", "hacked"), "leads out of it"),
    "an absolute name": (lambda: Layer().file("/tmp/hacked", "hacked"), "absolute name"),
    "a file through an absolute link": (lambda: Layer().link("a", "/tmp").file("a/hacked"), "is a link or a file"),
    "a file through a relative link": (lambda: Layer().link("a", "..").file("a/outside"), "is a link or a file"),
    "a directory through a link": (lambda: Layer().link("a", "..").directory("a/new"), "is a link or a file"),
    "a whiteout through a link": (lambda: Layer().link("a", "..").file("a/.wh.outside"), "is a link or a file"),
    "a hard link out": (lambda: Layer().hard_link("a", "../outside"), "leads out of it"),
    "a hard link to an absolute name": (lambda: Layer().hard_link("a", "/etc/passwd"), "absolute name"),
    "a hard link through a link": (lambda: Layer().link("a", "..").hard_link("b", "a/outside"), "not in the layer"),
    "a hard link to another layer": (lambda: Layer().hard_link("a", "etc/passwd"), "not in the layer"),
    "a hard link to a directory": (lambda: Layer().directory("a").hard_link("b", "a"), "is not to a file"),
    "a whiteout of the directory above": (lambda: Layer().file(".wh..."), "whiteout of"),
    "a whiteout of nothing": (lambda: Layer().file("a/.wh."), "whiteout of"),
    "too many files": (lambda: many(101), r"more than 100 files \(\[limits\] image_files\)"),
    "a large file": (lambda: Layer().file("a", bytes(2 << 20)), r"more than 1048576 bytes \(\[limits\] image_bytes\)"),
    "many directories": (lambda: Layer().directory("/".join("a" * 250)), "nested more than"),
    "a name that no file can have": (lambda: Layer().file("n" * 300), "cannot be made"),
}  # fmt: skip


def many(count: int) -> Layer:
    layer = Layer()
    for number in range(count):
        layer.file(f"f{number}")
    return layer


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_layer_is_refused(case: str, root: Path, tmp_path: Path):
    make, why = HOSTILE[case]
    with pytest.raises(BadLayer, match=why):
        unpack(make(), root)
    assert (tmp_path / "outside").read_text() == "untouched"
    assert sorted(os.listdir(tmp_path)) == ["layer", "outside"]
    assert not Path("/tmp/hacked").exists()


def test_a_link_in_place_of_a_directory_is_replaced_not_followed(root: Path, tmp_path: Path):
    unpack(Layer().link("a", "..").file("a", "a file"), root)
    assert (root / "a").read_text() == "a file"
    assert (tmp_path / "outside").read_text() == "untouched"


def header(layer: Layer, at: int, field: bytes) -> bytes:
    """The archive with a changed first header, and the right checksum."""
    data = bytearray(layer.tar)
    data[at : at + len(field)] = field
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    return bytes(data)


def pax(records: bytes) -> bytes:
    return header(Layer().file("a", records), 156, b"x")


DAMAGED: dict[str, Callable[[], bytes]] = {
    "no archive": lambda: b"x" * 2048,
    "cut in a file": lambda: Layer().file("a", "x" * 2000).tar[:1024],
    "cut in a header": lambda: Layer().file("a").tar[:300],
    "a negative size": lambda: header(Layer().file("a", "x"), 124, b"\xc0" + bytes(11)),
    "a size that is no number": lambda: header(Layer().file("a", "x"), 124, b"zzzzzzzzzzz\0"),
    "an unknown type": lambda: header(Layer().file("a", "x"), 156, b"Z"),
    "a sparse file": lambda: header(Layer().file("a", "x"), 156, b"S"),
    "an endless header": lambda: header(Layer().file("a", "x"), 124, b"%011o\0" % (1 << 32))[:1024].replace(
        b"\x000", b"\x00x"
    ),
    "a header that is no PAX": lambda: header(Layer().file("a", "no records"), 156, b"x"),
    "a header of the length 0": lambda: pax(b"0 path=a\n"),
    "a header that is shorter than it says": lambda: pax(b"11 path=a\n"),
    "a header without a value": lambda: pax(b"9 path a\n"),
    "a header without a line feed": lambda: pax(b"9 path=abc"),
    "a header of many records": lambda: pax(b"".join(b"%d %06d=\n" % (11, n) for n in range(90_000))),
    "a header that renames all files": lambda: header(Layer().file("a", "20 path=/etc/passwd\n"), 156, b"g"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_layer_is_refused(case: str, root: Path):
    with pytest.raises(BadLayer):
        unpack(DAMAGED[case](), root)


def test_headers_are_read_in_the_time_that_their_size_needs(root: Path):
    """The same record again and again: nothing is wrong with it, and it must not cost more than any other data."""
    layer = Layer().directory("a").entry("b", tarfile.XHDTYPE, 0o644, data=b"9 path=c\n" * 100_000).file("d")
    began = time.process_time()
    unpack(layer, root)
    assert (root / "c").exists()
    assert time.process_time() - began < 2
