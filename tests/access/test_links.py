"""Links that work without a key."""

import pytest

from turnout.access import Key
from turnout.access.links import LOG_SECONDS, check_link, make_link
from turnout.errors import Denied

ROOT = Key("AKIDroot", "the root secret", "default", root=True)
ABOUT = ("log", "p1", "job-1", "worker-0")
NOW = 1_700_000_000.0


def test_a_link_works_until_it_expires() -> None:
    link = make_link(ROOT, ABOUT, NOW)
    assert link.expires == NOW + LOG_SECONDS
    check_link(ROOT, ABOUT, str(link.expires), link.signature, NOW)
    check_link(ROOT, ABOUT, str(link.expires), link.signature, link.expires)
    with pytest.raises(Denied, match="expired"):
        check_link(ROOT, ABOUT, str(link.expires), link.signature, link.expires + 1)


@pytest.mark.parametrize(
    "about",
    [
        ("log", "p2", "job-1", "worker-0"),
        ("log", "p1", "job-2", "worker-0"),
        ("log", "p1", "job-1", "worker-1"),
        ("shell", "p1", "job-1", "worker-0"),
        ("log", "p1", "job-1worker-0", ""),
        ("log", "p1", "job-1"),
    ],
)
def test_a_link_has_one_target(about: tuple[str, ...]) -> None:
    link = make_link(ROOT, ABOUT, NOW)
    with pytest.raises(Denied, match="is for something else"):
        check_link(ROOT, about, str(link.expires), link.signature, NOW)


def test_its_expiry_cannot_be_extended() -> None:
    link = make_link(ROOT, ABOUT, NOW)
    with pytest.raises(Denied):
        check_link(ROOT, ABOUT, str(link.expires + 1000), link.signature, NOW)


@pytest.mark.parametrize("expires", ["", "soon", "-1", "1e9", "٣", "9" * 4000])
@pytest.mark.parametrize("signature", ["", "0" * 64, "é", "\udc80"])
def test_nonsense_is_refused(expires: str, signature: str) -> None:
    with pytest.raises(Denied):
        check_link(ROOT, ABOUT, expires, signature, NOW)


def test_another_root_key_makes_another_signature() -> None:
    link = make_link(ROOT._replace(secret="another"), ABOUT, NOW)
    with pytest.raises(Denied):
        check_link(ROOT, ABOUT, str(link.expires), link.signature, NOW)
