"""PackageDir: what is mounted where."""

import posixpath
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnout.dialects.tia import mounts
from turnout.errors import Invalid
from turnout.job import Mount

COS = "cos://mybucket-1256385809.cos.ap-shanghai.myqcloud.com"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            f"{COS}/mnist_example:/data/mnist_example",
            Mount("cos://mybucket-1256385809/mnist_example", "/data/mnist_example"),
        ),
        (f"{COS}/:/data/", Mount("cos://mybucket-1256385809/", "/data")),
        (f"{COS}/a/b/:/data", Mount("cos://mybucket-1256385809/a/b", "/data")),
        ("cos://my-bucket-2-125.cos.x.com/d:/m", Mount("cos://my-bucket-2/d", "/m")),
        ("nfs://10.10.10.1:/dir:/data", Mount("nfs://10.10.10.1/dir", "/data")),
        ("nfs://[fd00::1]:/dir:/data", Mount("nfs://[fd00::1]/dir", "/data")),
        (
            "cephfs://admin:passwdsecret@10.10.10.1:/dir:/data",
            Mount("cephfs://admin:passwdsecret@10.10.10.1/dir", "/data"),
        ),
        ("cephfs://10.0.0.1,10.0.0.2:/dir:/data", Mount("cephfs://10.0.0.1,10.0.0.2/dir", "/data")),
        ("file:///home/me/code:/data", Mount("file:///home/me/code", "/data")),
        ("file:///datasets:/in:ro", Mount("file:///datasets", "/in", read_only=True)),
        ("file:///a b/ü:/da ta", Mount("file:///a b/ü", "/da ta")),
    ],
)
def test_what_is_accepted(entry: str, expected: Mount):
    assert mounts.parse(entry) == expected


@pytest.mark.parametrize(
    "entry",
    [
        "/home/me/code",
        "/* nfs or cos address */",
        "http://host/dir:/data",
        "s3://bucket/dir:/data",
        "cos://",
        "cos://mybucket/dir:/data",
        "cos://mybucket.cos.ap-shanghai.myqcloud.com/dir:/data",
        f"{COS}/dir",
        f"{COS}/dir:",
        f"{COS}/dir:data",
        f"{COS}/dir:/",
        f"{COS}/../other:/data",
        f"{COS}/dir:/data/../../etc",
        f"{COS}/dir:/data\n",
        f"{COS}/di\x00r:/data",
        "nfs://10.10.10.1:dir:/data",
        "nfs://:/dir:/data",
        "nfs://10.10.10.1:/dir",
        "cephfs://10.10.10.1:/dir",
        "file://relative:/data",
        "file:///dir:/etc/passwd",
        "file:///dir:/usr",
        "file:///dir:/proc/self",
        "file:///dir/../../etc:/data",
        "file:///dir:/data:rw",
        "file:///dir:/da\udcffta",
    ],
)
def test_what_is_refused(entry: str):
    with pytest.raises(Invalid) as raised:
        mounts.parse_all(["", entry])
    assert raised.value.field == "PackageDir.1"
    assert "PackageDir.1" in raised.value.message


@pytest.mark.parametrize("nothing", [None, [], [""], ["", ""]])
def test_nothing_to_mount(nothing: list[str] | None):
    assert mounts.parse_all(nothing) == ()


def test_a_mount_point_can_be_taken_once():
    with pytest.raises(Invalid, match="already"):
        mounts.parse_all(["file:///a:/data", "file:///b:/data/"])


@pytest.mark.parametrize(("first", "second"), [("/b", "/b/x/evil"), ("/b/x/evil", "/b"), ("/b/", "//b/./x")])
def test_a_mount_point_is_not_inside_of_another(first: str, second: str):
    with pytest.raises(Invalid, match=r"/b/x(/evil)? is inside /b,") as raised:
        mounts.parse_all([f"file:///a:{first}", f"file:///c:{second}"])
    assert raised.value.field == "PackageDir.1"
    assert len(mounts.parse_all(["file:///a:/b", "file:///c:/bb", "file:///d:/c/b"])) == 3


names = st.text(string.ascii_letters + string.digits + "._- üß", min_size=1, max_size=12)
segments = names.filter(lambda name: name not in (".", ".."))
paths = st.lists(segments, min_size=1, max_size=4).map("/".join)


@given(paths, segments.filter(lambda name: name not in mounts.SYSTEM), paths)
def test_every_cos_directory(remote: str, first: str, rest: str):
    local = f"/{first}/{rest}"
    assert mounts.parse(f"{COS}/{remote}:{local}") == Mount(f"cos://mybucket-1256385809/{remote}", local)


@given(
    st.one_of(
        st.text(), st.builds("{}://{}".format, st.sampled_from(list(mounts.FORMS)), st.text("/:.@,a-1 \n"))
    )
)
@example("file:///a:/..")
@example("nfs://h:/..:/data")
def test_a_mount_never_leads_upwards_or_onto_the_system(entry: str):
    """Whatever the text, it is refused or names a proper place below the root."""
    try:
        mount = mounts.parse(entry)
    except Invalid:
        return
    assert mount.target == posixpath.normpath(mount.target) != "/"
    assert mount.target.startswith("/")
    assert ".." not in mount.source.split("/")
    assert mount.source.split("://")[0] in mounts.FORMS


def test_the_first_mount_is_the_package_if_it_is_in_a_bucket():
    """It must exist; the others may be directories for results."""
    code, out = (
        "cos://b-1.cos.ap-beijing.myqcloud.com/code:/code",
        "cos://b-1.cos.ap-beijing.myqcloud.com/out:/out",
    )
    assert [mount.package for mount in mounts.parse_all([code, out])] == [True, False]
    assert [mount.package for mount in mounts.parse_all(["file:///code:/code", out])] == [False, False]
