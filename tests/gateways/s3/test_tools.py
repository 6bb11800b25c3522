"""The commands and libraries that people have: aws, rclone, obstore."""

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from tests.gateways.s3.conftest import ROOT, Gateway, open_gateway

BIN = Path(sys.executable).parent


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "deep/er").mkdir(parents=True)
    (source / "a.txt").write_text("a")
    (source / "empty").write_text("")
    (source / "deep/ü &+.txt").write_text("b")
    (source / "deep/er/large").write_bytes(os.urandom(18_000_000))
    return source


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def run(command: list[str | Path], env: dict[str, str]) -> str:
    done = subprocess.run(
        command, env=os.environ | env, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_aws_s3(gateway: Gateway, tree: Path, tmp_path: Path):
    aws = [sys.executable, "-W", "ignore", "-m", "awscli", "s3"]
    run([*aws, "mb", "s3://cli"], gateway.environment())
    run([*aws, "sync", tree, "s3://cli/x"], gateway.environment())
    assert contents(gateway.buckets / "cli/x") == contents(tree)
    assert run([*aws, "sync", tree, "s3://cli/x"], gateway.environment()) == ""
    run([*aws, "sync", "s3://cli/x", tmp_path / "back"], gateway.environment())
    assert contents(tmp_path / "back") == contents(tree)
    run([*aws, "cp", "s3://cli/x/deep/er/large", "s3://cli/copy"], gateway.environment())
    assert "PRE x/" in run([*aws, "ls", "s3://cli"], gateway.environment())
    assert run([*aws, "cp", "s3://cli/x/a.txt", "-"], gateway.environment()) == "a"
    run([*aws, "rb", "--force", "s3://cli"], gateway.environment())
    assert not (gateway.buckets / "cli").exists()


def test_rclone(gateway: Gateway, tree: Path, tmp_path: Path):
    command = f"{BIN}/rclone"
    env = {
        "RCLONE_CONFIG": str(tmp_path / "none.conf"),
        "RCLONE_CONFIG_T_TYPE": "s3",
        "RCLONE_CONFIG_T_PROVIDER": "Other",
        "RCLONE_CONFIG_T_ENDPOINT": gateway.url,
        "RCLONE_CONFIG_T_ACCESS_KEY_ID": ROOT.id,
        "RCLONE_CONFIG_T_SECRET_ACCESS_KEY": ROOT.secret,
        "RCLONE_S3_UPLOAD_CUTOFF": "10M",
    }
    run([command, "copy", tree, "t:clone/x"], env)
    assert contents(gateway.buckets / "clone/x") == contents(tree)
    run([command, "check", tree, "t:clone/x"], env)
    run([command, "sync", "t:clone/x", tmp_path / "back"], env)
    assert contents(tmp_path / "back") == contents(tree)
    os.utime(tree / "a.txt", (1, 1))
    run([command, "copy", tree, "t:clone/x"], env)  # sets the time by a copy onto itself
    assert "1970-01-01" in run([command, "lsl", "t:clone/x/a.txt"], env)
    run([command, "moveto", "t:clone/x/a.txt", "t:clone/x/moved"], env)
    assert sorted(run([command, "lsf", "t:clone/x"], env).split()) == ["deep/", "empty", "moved"]
    run([command, "purge", "t:clone"], env)
    assert not (gateway.buckets / "clone").exists()


def test_aws_presigns(gateway: Gateway):
    aws = [sys.executable, "-W", "ignore", "-m", "awscli"]
    gateway.client().put_object(Bucket="aws", Key="signed ü", Body=b"by url")
    env = gateway.environment()
    url = run([*aws, "s3", "presign", "s3://aws/signed ü", "--expires-in", "60"], env).strip()
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == b"by url"


def test_obstore(gateway: Gateway):
    store = S3Store(
        "ob",
        endpoint=gateway.url,
        access_key_id=ROOT.id,
        secret_access_key=ROOT.secret,
        region="us-east-1",
        client_options={"allow_http": True},
    )
    data = os.urandom(21_000_000)
    obstore.put(store, "a/small ü", b"small")
    obstore.put(store, "a/large", data, use_multipart=True, chunk_size=6_000_000)
    assert bytes(obstore.get(store, "a/large").bytes()) == data
    assert bytes(obstore.get_range(store, "a/large", start=5, end=9)) == data[5:9]
    obstore.copy(store, "a/large", "b")
    obstore.rename(store, "b", "c")
    listed = {one["path"]: one["size"] for page in obstore.list(store) for one in page}
    assert listed == {"a/large": len(data), "a/small ü": 5, "c": len(data)}
    with pytest.raises(Exception, match="already exists"):
        obstore.put(store, "c", b"x", mode="create")
    assert obstore.list_with_delimiter(store)["common_prefixes"] == ["a"]
    obstore.delete(store, ["a/large", "a/small ü", "c"])
    assert list(obstore.list(store)) == []


def test_without_keys_everyone_is_root():
    with open_gateway(no_auth=True) as gateway:
        s3 = gateway.client(ROOT._replace(id="whoever", secret="whatever"))
        s3.put_object(Bucket="b", Key="k", Body=b"x")
        store = S3Store("b", endpoint=gateway.url, skip_signature=True, client_options={"allow_http": True})
        assert bytes(obstore.get(store, "k").bytes()) == b"x"
