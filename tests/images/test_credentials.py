"""Private images: whose credentials bring them, and who may use them."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.images.conftest import OpenCache
from tests.images.oci import Layer, Layout
from tests.images.registry import PASSWORD, USER, Registry
from turnout.errors import Denied, Misconfigured, TurnoutError
from turnout.images import parse
from turnout.registries import Registry as Settings
from turnout.registries import check

SECRET = Layer().file("secret", "of vision").tar


@pytest.fixture
def image(private_hub: Registry, tmp_path: Path) -> str:
    return private_hub.push(Layout(tmp_path / "image").image(SECRET).source(), "vision/model:1")


def settings(hub: Registry, **others: object) -> Settings:
    values: dict[str, object] = {"username": USER, "password": PASSWORD, "projects": ["vision"]} | others
    return Settings(host=hub.host, http=True, **values)  # type: ignore[arg-type]


async def test_only_the_project_of_the_credentials_gets_the_image(open_cache: OpenCache, private_hub, image):
    name = parse(image)
    async with open_cache({"team": settings(private_hub)}) as cache:
        found = await cache.get(name, "vision")
        assert cache.lookup(name, "vision") == found
        assert cache.lookup(name, "language") is None
        assert [one.name.name for one in cache.cached("vision", root=False)] == [image]
        assert cache.cached("language", root=False) == []
        with pytest.raises(Denied):
            await cache.get(name, "language")
    # Also in a new service, and by the digest.
    async with open_cache({"team": settings(private_hub)}) as cache:
        assert cache.lookup(name, "vision") == found
        with pytest.raises(Denied):
            await cache.get(name.at(found.digest), "language")


async def test_a_digest_of_a_private_layer_does_not_open_it(
    open_cache: OpenCache, private_hub: Registry, hub: Registry, image: str, tmp_path: Path
):
    """An image of another registry names the layer's digests, without having the layer."""
    layout = Layout(tmp_path / "stolen").image(SECRET)
    name = parse(hub.push(layout.source(), "thief/model:1"))
    hub.blob(layout.digests["layer"]).write_bytes(b"not the layer")
    registries = {"team": settings(private_hub), "hub": Settings(host=hub.host, http=True)}
    async with open_cache(registries) as cache:
        await cache.get(parse(image), "vision")
        with pytest.raises(TurnoutError):
            await cache.get(name, "language")
        assert cache.lookup(name, "language") is None


async def test_another_project_gets_the_same_layer_with_its_own_credentials(open_cache, private_hub, image):
    registries = {"team": settings(private_hub), "other": settings(private_hub, projects=["language"])}
    async with open_cache(registries) as cache:
        first = await cache.get(parse(image), "vision")
        second = await cache.get(parse(image), "language")
        assert second.layers == first.layers


async def test_a_wrong_password(open_cache: OpenCache, private_hub: Registry, image: str):
    async with open_cache({"team": settings(private_hub, password="wrong")}) as cache:
        with pytest.raises(Denied, match="refuses the credentials of this project") as refused:
            await cache.get(parse(image), "vision")
    assert "wrong" not in str(refused.value)


async def test_the_password_comes_from_a_file_and_is_in_no_argument(
    open_cache: OpenCache, private_hub: Registry, image: str, tmp_path: Path, monkeypatch
):
    """skopeo is a script here that shows how it was started."""
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    tools = Path(os.path.realpath("/tmp")) / f"turnout-tools-{os.getpid()}"
    tools.mkdir(mode=0o755)
    seen = tools / "seen"
    seen.touch()
    seen.chmod(0o666)
    (tools / "skopeo").write_text(
        f'#!/bin/sh\n{{ echo "$@"; env; ls -l /proc/$$/fd; }} >> {seen}\nexec /usr/bin/skopeo "$@"\n'
    )
    (tools / "skopeo").chmod(0o755)
    monkeypatch.setattr("turnout.images.skopeo._PLACES", f"{tools}:/usr/bin:/bin")
    try:
        entry = settings(private_hub, password="", password_file=str(tmp_path / "password"))
        async with open_cache({"team": entry}) as cache:
            await cache.get(parse(image), "vision")
        text = seen.read_text()
    finally:
        subprocess.run(["rm", "-r", str(tools)], check=True)
    assert "--authfile=/proc/self/fd/" in text
    assert PASSWORD not in text
    assert USER not in text
    assert "TURNOUT" not in text


async def test_the_operators_own_login_is_not_used(
    open_cache: OpenCache, private_hub: Registry, image: str, tmp_path: Path, monkeypatch
):
    home = tmp_path / "home"
    for place in (home / ".docker" / "config.json", home / "containers" / "auth.json"):
        place.parent.mkdir(parents=True)
        command = [
            "skopeo",
            "login",
            "--tls-verify=false",
            "-u",
            USER,
            "--password-stdin",
            "--authfile",
            str(place),
        ]
        subprocess.run(
            [*command, private_hub.host], input=PASSWORD, text=True, check=True, capture_output=True
        )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(home / "containers" / "auth.json"))
    async with open_cache({"hub": Settings(host=private_hub.host, http=True)}) as cache:
        with pytest.raises(Denied, match="no credentials for this registry"):
            await cache.get(parse(image), "vision")


@pytest.fixture
def wrong() -> dict[str, Settings]:
    return {
        "https://hub": Settings(),
        "a": Settings(username="me"),
        "b": Settings(username="me", password="x", password_file="/x"),
        "c": Settings(username="me", password_file="relative"),
        "hub.example.com": Settings(username="me", password="x", http=True),
    }


def test_wrong_settings_are_refused(wrong: dict[str, Settings]):
    for name, one in wrong.items():
        with pytest.raises(Misconfigured, match="registries"):
            check({name: one})
    check({"127.0.0.1:5000": Settings(username="me", password="x", http=True), "hub": Settings(ca="/ca.pem")})
