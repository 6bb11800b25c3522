"""`turnout cp`, `ls` and `rm` against a real service."""

import base64
import fcntl
import http.client
import json
import os
import pty
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import google_crc32c
import pytest

from tests.running import KEY
from tests.stores import faulty_proxy
from turnout.access import make_token


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def run(run_turnout, service, monkeypatch, here, request):
    """Runs a command in which `@` stands for the test's bucket."""
    monkeypatch.setenv("TURNOUT_ENDPOINT", service.endpoint)
    monkeypatch.setenv("TURNOUT_KEY", f"{KEY.id}:{KEY.secret}")
    return lambda *words: run_turnout(*(word.replace("@", bucket_of(request)) for word in words))


@pytest.fixture
def bucket(service, request) -> Path:
    return service.data / "buckets" / bucket_of(request)


def bucket_of(request) -> str:
    return f"b{abs(hash(request.node.name)) % 10**12}"


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_a_file_is_uploaded_and_downloaded(run, bucket, here):
    (here / "a.txt").write_text("hello")
    assert run("cp", "a.txt", "obs://@/dir/b.txt") == (0, "", "")
    assert (bucket / "dir" / "b.txt").read_text() == "hello"
    assert run("cp", "cos://@/dir/b.txt", "back.txt") == (0, "", "")
    assert (here / "back.txt").read_text() == "hello"
    assert sorted(path.name for path in here.iterdir()) == ["a.txt", "back.txt"]


def test_a_target_that_is_a_directory_or_ends_with_a_slash(run, bucket, here):
    (here / "a.txt").write_text("a")
    run("cp", "a.txt", "gs://@")
    run("cp", "a.txt", "gs://@/new/")
    run("cp", "a.txt", "gs://@/new")
    assert tree(bucket) == {"a.txt": b"a", "new/a.txt": b"a"}
    (here / "down").mkdir()
    run("cp", "gs://@/a.txt", "down")
    run("cp", "gs://@/a.txt", ".")
    run("cp", "gs://@/a.txt", "made/")
    assert {"down/a.txt", "made/a.txt"} <= tree(here).keys()


def test_a_tree_is_copied_as_cp_does(run, bucket, here):
    for name in ("one", "sub/two", "sub/deep/three"):
        (here / "dir" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "dir" / name).write_text(name)
    whole = tree(here / "dir")
    assert run("cp", "-r", "dir", "s3://@/x/") == (0, "", "")
    assert tree(bucket / "x") == whole
    run("cp", "-r", "dir", "s3://@/x")
    assert tree(bucket / "x" / "dir") == whole
    run("cp", "-r", "dir/.", "s3://@/y")
    run("cp", "-r", "dir/.", "s3://@/y")
    assert tree(bucket / "y") == whole
    run("cp", "-r", "s3://@/y", "new")
    assert tree(here / "new") == whole
    run("cp", "-r", "s3://@/y", "new")
    assert tree(here / "new" / "y") == whole
    assert run("cp", "-r", "s3://@/y", "gs://@/z") == (0, "", "")
    assert tree(bucket / "z") == whole


def test_a_target_that_is_a_pipe_or_a_link(run, here):
    (here / "a").write_text("hello")
    run("cp", "a", "gs://@/a")
    os.mkfifo(here / "pipe")
    with ThreadPoolExecutor() as threads:
        read = threads.submit((here / "pipe").read_text)
        assert run("cp", "gs://@/a", "pipe") == (0, "", "")
        assert read.result() == "hello"
    assert (here / "pipe").is_fifo()
    (here / "link").symlink_to("real")
    assert run("cp", "gs://@/a", "link") == (0, "", "")
    assert (here / "link").is_symlink()
    assert (here / "real").read_text() == "hello"


def test_several_sources(run, bucket, here):
    for name in ("a", "b"):
        (here / name).write_text(name)
    assert run("cp", "a", "b", "gs://@/to/") == (0, "", "")
    assert tree(bucket) == {"to/a": b"a", "to/b": b"b"}
    outcome = run("cp", "a", "b", "gs://@/to/a")
    assert "must be a directory or end with a slash" in outcome.err


def test_two_sources_with_the_same_target_are_refused(run, bucket, here):
    for name in ("d", "e"):
        (here / name).mkdir()
        (here / name / "a").write_text(name)
    code, _, complaint = run("cp", "d/a", "e/a", "gs://@/clash/")
    assert (code, "two sources have the target" in complaint) == (1, True)


def test_a_file_name_that_is_not_utf8_is_refused(run, here):
    (here / "tree").mkdir()
    (here / "tree" / os.fsdecode(b"\xff.bin")).touch()
    for words in (("cp", "-r", "tree", "gs://@/tree"), ("rm", os.fsdecode(b"gs://@/\xff"))):
        code, _, complaint = run(*words)
        assert (code, "its name must be UTF-8" in complaint) == (1, True), complaint


def test_links_are_not_followed(run, bucket, here):
    (here / "secret").write_text("s")
    (here / "dir").mkdir()
    (here / "dir" / "file").write_text("f")
    (here / "dir" / "link").symlink_to(here / "secret")
    outcome = run("cp", "-r", "dir", "gs://@")
    assert (outcome.code, outcome.err) == (0, "turnout: skipped dir/link: it is a link\n")
    assert tree(bucket) == {"file": b"f"}
    assert "dir/link is a link, and links are not followed" in run("cp", "dir/link", "gs://@").err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["cp", "none", "gs://@/x"], "turnout: none: No such file or directory"),
        (["cp", "dir", "gs://@/x"], "turnout: dir is a directory: copy it with -r"),
        (["cp", "gs://@/none", "x"], "turnout: gs://@/none does not exist"),
        (["cp", "a", "b"], "turnout: source or target must be in a bucket"),
        (["cp", "a"], "turnout: name a source and a target"),
        (["cp", "a", "ftp://@/x"], "turnout: 'ftp://@/x' is not the URL of a bucket"),
        (["cp", "a", "gs://@/x/../y"], "none of them `.` or `..`"),
        (["cp", "a", "gs://UPPER/x"], "cannot be the name of a bucket"),
        (["cp", "-", "gs://@/"], "does not name an object"),
        (["rm", "gs://@/none"], "turnout: gs://@/none does not exist"),
        (["ls", "gs://@/none"], "does not exist"),
    ],
)
def test_errors_are_one_line(run, here, words, complaint, request):
    (here / "dir").mkdir()
    (here / "a").write_text("a")
    run("cp", "a", "gs://@/seed")
    outcome = run(*words)
    assert (outcome.code, outcome.out) == (1, "")
    assert complaint.replace("@", bucket_of(request)) in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_wrong_key_or_no_service_fails_before_the_first_copy(run, here, monkeypatch):
    (here / "a").write_text("a")
    monkeypatch.setenv("TURNOUT_KEY", "nobody:wrong-secret")
    assert "no such key, or a wrong secret" in run("cp", "a", "gs://@/a").err
    assert "cannot reach" in run("cp", "a", "gs://@/a", "--endpoint=http://127.0.0.1:1").err


def test_ls(run, here):
    (here / "d" / "e").mkdir(parents=True)
    (here / "d" / "big").write_bytes(b"x" * 3000)
    (here / "d" / "e" / "small").write_text("s")
    run("cp", "-r", "d", "gs://@/d")
    assert run("ls", "gs://@").out == "d/\n"
    assert run("ls", "gs://@/d").out == run("ls", "gs://@/d/").out == "big\ne/\n"
    assert run("ls", "-r", "gs://@").out == "d/big\nd/e/small\n"
    assert run("ls", "gs://@/d/big").out == "big\n"
    long = run("ls", "-l", "gs://@/d").out.splitlines()
    assert long[0].split() == ["SIZE", "MODIFIED", "NAME"]
    assert (long[1].split()[:2], long[1].split()[-1]) == (["2.9", "K"], "big")
    entries = json.loads(run("ls", "gs://@/d", "--output=json").out)
    assert [entry.get("size") for entry in entries] == [3000, None]
    assert entries[1]["url"].endswith("/d/e/")


def test_ls_alone_shows_the_buckets(run, here, request):
    (here / "a").write_text("a")
    run("cp", "a", "gs://@")
    assert bucket_of(request) in run("ls").out.splitlines()
    assert bucket_of(request) in [one["name"] for one in json.loads(run("ls", "--output=json").out)]


def test_rm(run, bucket, here):
    (here / "d").mkdir()
    for name in ("1", "2", "3"):
        (here / "d" / name).write_text(name)
    run("cp", "-r", "d", "gs://@/d")
    assert run("rm", "gs://@/d/1", "gs://@/d/2") == (0, "", "")
    assert list(tree(bucket)) == ["d/3"]
    assert "is a directory: remove it with -r" in run("rm", "gs://@/d").err
    assert run("rm", "-r", "gs://@/d") == (0, "", "")
    assert tree(bucket) == {}


@pytest.mark.slow
def test_many_files_and_pages(run, bucket, here):
    (here / "many").mkdir()
    for i in range(1100):
        (here / "many" / f"{i:04}").write_text(str(i))
    assert run("cp", "-r", "many", "gs://@/many") == (0, "", "")
    assert len(run("ls", "gs://@/many").out.splitlines()) == 1100
    assert run("cp", "-r", "gs://@/many", "back") == (0, "", "")
    assert tree(here / "back") == tree(here / "many")
    assert run("rm", "-r", "gs://@/many") == (0, "", "")
    assert tree(bucket) == {}


def command(
    service, *words: str, stdin: int | None = None, stdout: int | None = None, stderr: int | None = None
) -> subprocess.Popen[bytes]:
    env = os.environ | {
        "TURNOUT_ENDPOINT": service.endpoint,
        "TURNOUT_KEY": f"{KEY.id}:{KEY.secret}",
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
    }
    argv = [sys.executable, "-m", "turnout.cli.main", *words]
    return subprocess.Popen(argv, env=env, stdin=stdin, stdout=stdout, stderr=stderr)


def test_from_and_to_a_pipe(service, bucket, request):
    data = os.urandom(3 << 20)
    url = f"gs://{bucket_of(request)}/piped"
    writer = command(service, "cp", "-", url, stdin=subprocess.PIPE)
    writer.communicate(data, timeout=60)
    assert writer.returncode == 0
    reader = command(service, "cp", url, "-", stdout=subprocess.PIPE)
    assert reader.communicate(timeout=60)[0] == data
    assert reader.returncode == 0


def test_a_download_resumes_after_broken_connections(run, service, bucket, here):
    (here / "large").write_bytes(os.urandom(12 << 20))
    run("cp", "large", "gs://@/large")
    with faulty_proxy(service.port, cut=3, after=3 << 20) as bad:
        assert run("cp", "gs://@/large", "back", f"--endpoint={bad.endpoint}") == (0, "", "")
        assert bad.cut == 0
    assert (here / "back").read_bytes() == (here / "large").read_bytes()
    assert sorted(path.name for path in here.iterdir()) == ["back", "large"]


def test_an_upload_restarts_after_a_broken_connection(run, service, bucket, here):
    (here / "large").write_bytes(os.urandom(8 << 20))
    with faulty_proxy(service.port, cut=1, after=5 << 20, upwards=True) as bad:
        assert run("cp", "large", "gs://@/large", f"--endpoint={bad.endpoint}") == (0, "", "")
        assert bad.cut == 0
    assert (bucket / "large").read_bytes() == (here / "large").read_bytes()


def test_an_object_that_is_replaced_during_a_download_is_downloaded_again(run, service, bucket, here):
    (here / "large").write_bytes(b"1" * (8 << 20))
    run("cp", "large", "gs://@/large")
    (here / "other").write_bytes(b"2" * (4 << 20))

    def replace() -> None:
        os.replace(here / "other", bucket / "large")

    with faulty_proxy(service.port, cut=1, after=3 << 20, on_cut=replace) as bad:
        assert run("cp", "gs://@/large", "back", f"--endpoint={bad.endpoint}") == (0, "", "")
    assert (here / "back").read_bytes() == b"2" * (4 << 20)


def test_drafts_of_a_killed_download_are_removed_by_the_next(run, service, bucket, here):
    (here / "large").write_bytes(os.urandom(8 << 20))
    run("cp", "large", "gs://@/large")
    with faulty_proxy(service.port, after=1 << 20) as slow:
        killed = command(service, "cp", f"gs://{bucket.name}/large", "back", f"--endpoint={slow.endpoint}")
        assert slow.reached.wait(30)
        slow.flowing.clear()
        killed.kill()
        killed.wait()
    [left] = here.glob(".turnout-*.part")
    assert run("cp", "gs://@/large", "fresh").code == 0
    assert left.exists(), "it might be another's that has just begun"
    os.utime(left, (time.time() - 3600, time.time() - 3600))
    with left.open("rb") as another:
        fcntl.flock(another, fcntl.LOCK_EX)
        assert run("cp", "gs://@/large", "locked").code == 0
        assert left.exists(), "another is at it"
    assert run("cp", "gs://@/large", "back").code == 0
    assert sorted(path.name for path in here.iterdir()) == ["back", "fresh", "large", "locked"]


def test_a_copy_with_a_wrong_checksum_is_removed(service, bucket, here):
    """A body whose checksum differs from its header."""
    sent = base64.b64encode(google_crc32c.Checksum(b"right").digest()).decode()
    connection = http.client.HTTPConnection("127.0.0.1", service.port)
    headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}", "X-Turnout-Crc32c": sent}
    connection.request("PUT", f"/turnout/v1/object?url=gs://{bucket.name}/a", b"wrong", headers)
    answer = connection.getresponse()
    assert (answer.status, b"crc32c" in answer.read()) == (400, True)
    connection.close()
    assert not (bucket / "a").exists()


def test_a_progress_bar_on_a_terminal_only(service, here, request):
    (here / "a").write_bytes(b"x" * (1 << 20))
    master, slave = pty.openpty()
    url = f"gs://{bucket_of(request)}/a"
    process = command(service, "cp", "a", url, stderr=slave, stdout=slave)
    os.close(slave)
    seen = b""
    try:
        while piece := os.read(master, 4096):
            seen += piece
    except OSError:
        pass
    os.close(master)
    assert process.wait(30) == 0
    assert b"1 file" in seen
    assert b"1.0/1.0 MB" in seen


def test_login_is_shared_with_tictl(run_turnout, run_tictl, service, monkeypatch):
    monkeypatch.delenv("TURNOUT_ENDPOINT", raising=False)
    monkeypatch.delenv("TURNOUT_KEY", raising=False)
    words = ("login", f"--endpoint={service.endpoint}", "--si", KEY.id, "--sk", KEY.secret)
    assert run_turnout(*words).code == 0
    assert run_turnout("ls").code == 0
    assert KEY.id in run_tictl("user").out
    assert run_turnout("logout").out == "user logged out\n"
