"""Names of images, what stands for them in the settings, and the documents that describe them."""

import json
import time

import pytest

from turnout.errors import Invalid
from turnout.images import ImageConfig, parse, target_of
from turnout.images.manifest import BadImage, Manifest, digest_of, read_config, read_manifest
from turnout.images.reference import is_internal

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("python", "docker.io/library/python:latest"),
        ("python:3.12", "docker.io/library/python:3.12"),
        ("team/trainer:1", "docker.io/team/trainer:1"),
        ("index.docker.io/python", "docker.io/library/python:latest"),
        ("localhost/trainer", "localhost/trainer:latest"),
        ("gcr.io/p/trainer:v1", "gcr.io/p/trainer:v1"),
        ("Registry.example.com:5000/a/b/c_d.e--f:T.1-x", "registry.example.com:5000/a/b/c_d.e--f:T.1-x"),
        ("[::1]:5000/trainer:1", "[::1]:5000/trainer:1"),
        ("docker://gcr.io/p/trainer", "gcr.io/p/trainer:latest"),
        (f"gcr.io/p/trainer@{DIGEST}", f"gcr.io/p/trainer@{DIGEST}"),
        (f"gcr.io/p/trainer:v1@{DIGEST}", f"gcr.io/p/trainer@{DIGEST}"),
    ],
)
def test_a_name_is_completed_as_docker_does(name: str, full: str):
    assert str(parse(name)) == full
    assert str(parse(full)) == full


def test_people_see_the_short_name():
    assert parse("python:3").short == "python:3"
    assert parse("team/trainer").short == "team/trainer:latest"
    assert parse("gcr.io/p/trainer").short == "gcr.io/p/trainer:latest"


@pytest.mark.parametrize(
    "name",
    ["", " ", "Python", "a b", "trainer:", "trainer:a b", "trainer@sha256:12", "trainer@md5:" + "a" * 64, "a//b", "/a",
     "gcr.io/", "--help", "-v", "a/../b", "https://gcr.io/p/t", "gcr.io/p/t\n", "gcr.io:x/p/t", "a" * 2000],
)  # fmt: skip
def test_what_is_no_name_is_refused(name: str):
    with pytest.raises(Invalid, match="is not the name of an image") as refused:
        parse(name, "imageUri")
    assert refused.value.field == "imageUri"


@pytest.mark.parametrize("end", ["!/x", ".!/x", "-/x", ".:/x", ":1!/x"])
@pytest.mark.parametrize("part", ["a", "a-", "a.", "-", "a.a-"])
def test_no_name_takes_long_to_refuse(part: str, end: str):
    """A job's create waits for it, and everybody else too."""
    for name in (f"{part * 200}.{end}", f"a.b/{part * 200}{end}", f"{part * 100_000}.{end}"):
        began = time.process_time()
        with pytest.raises(Invalid):
            parse(name)
        assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "name", ["oci:/etc:1", "docker-archive:/etc/shadow", "docker-daemon:x:1", "dir:/", "tarball:x"]
)
def test_a_job_names_no_files_of_the_machine(name: str):
    with pytest.raises(Invalid, match="a job may only name registry/repository:tag"):
        parse(name)


def test_addresses_of_this_machine():
    inside = ["localhost", "a.localhost", "127.0.0.1", "127.1", "0x7f000001", "2130706433", "::1", "169.254.169.254",
              "0.0.0.0", "::ffff:127.0.0.1"]  # fmt: skip
    assert [host for host in inside if not is_internal(host)] == []
    assert not any(map(is_internal, ["10.0.0.1", "registry.example.com", "8.8.8.8", "2001:db8::1"]))


def test_what_stands_for_an_image():
    images = {
        "gcr.io/p/trainer": "PyTorch",
        "gcr.io/p/trainer:2": "team/other:1",
        "gcr.io/p/*": "oci:/images/p:1",
        "gcr.io/*": "host",
        "exact": "a/runtime",
    }
    assert target_of("gcr.io/p/trainer:1", images) == ("runtime", "PyTorch", "gcr.io/p/trainer")
    assert target_of("gcr.io/p/trainer:2", images) == ("image", "team/other:1", "gcr.io/p/trainer:2")
    assert target_of(f"gcr.io/p/other@{DIGEST}", images) == ("archive", "oci:/images/p:1", "gcr.io/p/*")
    assert target_of("gcr.io/q/trainer", images) == ("host", "", "gcr.io/*")
    assert target_of("exact", images, {"a/runtime"}) == ("runtime", "a/runtime", "exact")
    assert target_of("docker.io/python", images) is None


def documents(**config: object) -> tuple[bytes, bytes]:
    described = {"architecture": "amd64", "os": "linux", "config": config, "rootfs": {"diff_ids": [DIGEST]}}
    raw = json.dumps(described).encode()
    layers = [{"digest": DIGEST, "size": 5}]
    manifest = {"schemaVersion": 2, "config": {"digest": digest_of(raw), "size": len(raw)}, "layers": layers}
    return json.dumps(manifest).encode(), raw


def test_manifest_and_config():
    raw, described = documents(Entrypoint=["a"], Cmd=None, Env=["A=1"], WorkingDir="/app", User="7:8")
    manifest = read_manifest(raw, "amd64")
    assert isinstance(manifest, Manifest)
    assert manifest.digest == digest_of(raw)
    config, diff_ids = read_config(described, manifest, "amd64")
    assert diff_ids == [DIGEST]
    assert config == ImageConfig(("a",), (), ("A=1",), "7:8", "/app")
    with pytest.raises(BadImage, match="for linux/amd64; this machine runs linux/arm64"):
        read_config(described, manifest, "arm64")
    with pytest.raises(BadImage, match="another digest"):
        read_config(described + b" ", manifest, "amd64")


def test_an_index_names_the_manifest_for_this_machine():
    platforms = [{"os": "windows", "architecture": "amd64"}, {"os": "linux", "architecture": "arm64"}]
    entries = [{"digest": DIGEST, "size": 1, "platform": one} for one in platforms]
    raw = json.dumps({"schemaVersion": 2, "manifests": entries}).encode()
    assert read_manifest(raw, "arm64") == DIGEST
    with pytest.raises(BadImage, match="not made for linux/amd64; there are linux/arm64, windows/amd64"):
        read_manifest(raw, "amd64")


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"no json", b'{"schemaVersion": 1}', b'{"schemaVersion": 2}', b'{"config": 5}', b" " * (5 << 20),
     json.dumps({"schemaVersion": 2, "config": {"digest": "md5:1", "size": 1}, "layers": []}).encode(),
     json.dumps({"schemaVersion": 2, "config": {"digest": DIGEST, "size": -1}, "layers": []}).encode(),
     json.dumps({"schemaVersion": 2, "config": {"digest": DIGEST, "size": 1},
                 "layers": [{"digest": "sha256:../../etc/passwd", "size": 1}]}).encode(),
     b'{"x": ' + b"[" * 100_000, b'{"mediaType": "\xff"}', b'{"mediaType": "\\ud800"}'],
    ids=range(13),
)  # fmt: skip
def test_documents_that_are_wrong(raw: bytes):
    with pytest.raises(BadImage):
        read_manifest(raw, "amd64")
