"""`mox.file` in programs, each a process of its own, against the gateway."""

import http.server
import os
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.gateways.s3.conftest import Gateway
from tests.runner.modules.conftest import Job
from tests.runner.node.test_package import find_python
from turnout.runner.archive import MODULES

SCRIPT = """
# Of the shape that public repositories have: data in, train, model out.
import json, os
data_url, train_url = "obs://shape/data/", "s3://shape/output"
mox.file.write("obs://shape/data/train/points.csv", "x,y\\n1,3\\n2,5\\n")
mox.file.make_dirs(train_url)
mox.file.copy_parallel(data_url, "cache/data")
print(sorted(os.listdir("cache/data")), mox.file.exists(train_url), mox.file.exists(train_url + "/none"))
with mox.file.File("obs://shape/data/train/points.csv", "r") as file:
    rows = [list(map(float, line.split(","))) for line in file.readlines()[1:]]
weight = rows[1][1] - rows[0][1]
os.makedirs("cache/model")
with open("cache/model/model.json", "w") as file:
    json.dump({"weight": weight}, file)
mox.file.copy_parallel("cache/model", train_url)
print(mox.file.list_directory(train_url), json.loads(mox.file.read(train_url + "/model.json")))
"""


@pytest.mark.parametrize("version", ["3.7", "3.8", "3.11", "3.13"])
def test_a_script_as_public_repositories_have_it(job: Job, version: str) -> None:
    said = job(SCRIPT, python=find_python(version)).splitlines()
    assert said == ["['train'] True False", "['model.json'] {'weight': 2.0}"]


def test_text_bytes_and_what_is_appended(job: Job) -> None:
    said = job(
        """
url = "obs://files/a/hello.txt"
mox.file.write(url, "one\\n")
mox.file.append(url, "two")
mox.file.append_remote(url, "obs://files/both.txt")
mox.file.write("obs://files/raw", bytes(range(256)), binary=True)
print(repr(mox.file.read(url)), repr(mox.file.read("obs://files/both.txt", binary=True)))
print(mox.file.read("obs://files/raw", binary=True) == bytes(range(256)))
mox.file.write("local.txt", "here")
mox.file.append("local.txt", "!")
print(mox.file.read("local.txt"), mox.file.get_size("local.txt"), mox.file.get_size(url))
"""
    )
    assert said.splitlines() == ["'one\\ntwo' b'one\\ntwo'", "True", "here! 5 7"]


def test_files_in_all_modes(job: Job, gateway: Gateway) -> None:
    data = os.urandom(1 << 20) * 3
    gateway.client().put_object(Bucket="modes", Key="big", Body=data)
    said = job(
        """
import io
f = mox.file.File
with f("obs://modes/t", "w") as file:
    file.writelines(["a\\n", "b\\n"])
    file.flush()
    print(mox.file.read("obs://modes/t") == "a\\nb\\n")
    file.write("c")
with f("obs://modes/t", "r+") as file:
    file.seek(2)
    file.write("B")
with f("obs://modes/t", "ba+") as file:
    file.write(b"!")
with f("obs://modes/t") as file:
    print(list(file), file.tell() if False else file.size(), file.name, file.mode)
with f("obs://modes/big", "rb") as file:
    whole = mox.file.read("obs://modes/big", binary=True)
    file.seek(-5, 2)
    print(file.read() == whole[-5:], file.seek(1 << 20), file.read(7) == whole[1 << 20 : (1 << 20) + 7])
    file.seek(0)
    print(file.read() == whole, file.readable(), file.writable(), isinstance(file.readinto, object))
    print(io.TextIOWrapper(f("obs://modes/t", "rb")).read() == "a\\nB\\nc!")
with f("obs://modes/empty", "w"):
    pass
print(repr(f("obs://modes/empty").read()))
try:
    f("obs://modes/t", "x")
except FileExistsError as error:
    print("exists", error.filename)
forgotten = f("obs://modes/forgotten", "w")
forgotten.write("uploaded at the end")
"""
    )
    assert said.splitlines() == [
        "True",
        "['a\\n', 'B\\n', 'c!'] 6 obs://modes/t r",
        "True 1048576 True",
        "True True False True",
        "True",
        "''",
        "exists obs://modes/t",
    ]
    forgotten = gateway.client().get_object(Bucket="modes", Key="forgotten")
    assert forgotten["Body"].read() == b"uploaded at the end"


def test_directories(job: Job) -> None:
    said = job(
        """
f, b = mox.file, "obs://dirs"
for name in ("top", "d/one.txt", "d/two.csv", "d/in ä+b/three.txt", "d/in ä+b/.hidden"):
    f.write(f"{b}/{name}", name)
f.make_dirs(b + "/new/empty")
for url, deep in ((b, False), (b + "/d", False), (b + "/d/", True)):
    print(f.list_directory(url, recursive=deep))
print(f.list_directory(b, remove_sep=False, skip_file=True), f.list_directory(b, skip_dir=True))
print(f.glob(b + "/d/*.txt"))
print(f.glob(b + "/*/*/*.txt"))
print(f.glob(b + "/**/*.txt", recursive=True))
print(f.glob(b + "/d/[!t]*.???"), f.glob(b + "/none/*"), f.glob("obs://no-such-bucket/*"), f.glob(b + "/top"))
print(*f.walk(b + "/d"), *f.walk(b + "/none"), sep="\\n")
print(*((e.name, e.path, e.is_dir(), e.stat().length) for e in f.scan_dir(b + "/d")), sep="\\n")
print(f.get_size(b + "/d"), f.get_size(b + "/d", recursive=True), f.is_directory(b), f.is_directory(b + "/top"))
print([f.exists(url) for url in (b, b + "/", b + "/d", b + "/d/", b + "/top", b + "/x", "obs://no-such-bucket")])
seen = f.stat(b + "/d/one.txt")
print(seen.length, seen.st_size, seen.is_directory, seen.mtime_nsec > 10**18, f.stat(b + "/d").is_directory)
f.mk_dir(b + "/d/made")
print(f.is_directory(b + "/d/made"))
for call in (lambda: f.mk_dir(b + "/x/y"), lambda: f.list_directory(b + "/x"), lambda: f.stat(b + "/x")):
    try:
        call()
    except f.MoxFileNotExistsException as error:
        print(error)
"""
    ).splitlines()
    assert said == [
        "['d', 'new', 'top']",
        "['in ä+b', 'one.txt', 'two.csv']",
        "['in ä+b', 'in ä+b/.hidden', 'in ä+b/three.txt', 'one.txt', 'two.csv']",
        "['d/', 'new/'] ['top']",
        "['obs://dirs/d/one.txt']",
        "['obs://dirs/d/in ä+b/three.txt']",
        "['obs://dirs/d/in ä+b/three.txt', 'obs://dirs/d/one.txt']",
        "['obs://dirs/d/one.txt'] [] [] ['obs://dirs/top']",
        "('obs://dirs/d', ['in ä+b'], ['one.txt', 'two.csv'])",
        "('obs://dirs/d/in ä+b', [], ['.hidden', 'three.txt'])",
        "('in ä+b', 'obs://dirs/d/in ä+b', True, 0)",
        "('one.txt', 'obs://dirs/d/one.txt', False, 9)",
        "('two.csv', 'obs://dirs/d/two.csv', False, 9)",
        "0 54 True False",
        "[True, True, True, True, True, False, False]",
        "9 9 False True True",
        "True",
        "[Errno 2] No such file or directory: 'obs://dirs/x'",
        "[Errno 2] No such file or directory: 'obs://dirs/x'",
        "[Errno 2] No such file or directory: 'obs://dirs/x'",
    ]


def test_copies_moves_and_removals(job: Job, gateway: Gateway) -> None:
    source = job.directory / "source"
    (source / "sub/empty").mkdir(parents=True)
    (source / "big").write_bytes(os.urandom(40 << 20))
    (source / "sub/small").write_text("small")
    said = job(
        """
f, b = mox.file, "obs://copies"
f.copy_parallel("source", b + "/up", threads=4, is_processing=False)
f.copy_parallel(b + "/up", "back")
f.copy_parallel(b + "/up", b + "/twice/")
f.copy_parallel("source/sub/small", b + "/one.txt")
f.copy_parallel(b + "/one.txt", "made/one.txt")
f.copy_parallel("source", b + "/chosen", file_list=["sub/small"])
f.copy(b + "/one.txt", "made/")
f.copy(b + "/one.txt", b + "/dir/two.txt")
print(f.list_directory(b, recursive=True))
print(f.read("made/one.txt"), f.read(b + "/dir/two.txt"))
f.rename(b + "/twice", b + "/moved")
f.rename(b + "/one.txt", "here.txt")
f.rename("here.txt", b + "/there.txt")
f.remove(b + "/up", recursive=True)
f.remove(b + "/nothing")
print(f.list_directory(b, recursive=True))
for call in (lambda: f.copy("source", b + "/x"), lambda: f.copy_parallel("none", b)):
    try:
        call()
    except OSError as error:
        print(error)
"""
    ).splitlines()
    assert said == [
        str(["chosen", "chosen/sub", "chosen/sub/small", "dir", "dir/two.txt", "one.txt", "twice", "twice/big",
             "twice/sub", "twice/sub/empty", "twice/sub/small", "up", "up/big", "up/sub", "up/sub/empty",
             "up/sub/small"]),
        "small small",
        str(["chosen", "chosen/sub", "chosen/sub/small", "dir", "dir/two.txt", "moved", "moved/big", "moved/sub",
             "moved/sub/empty", "moved/sub/small", "there.txt"]),
        "[Errno 21] Is a directory: use mox.file.copy_parallel: 'source'",
        "[Errno 2] No such file or directory: 'none'",
    ]  # fmt: skip
    assert (job.directory / "back/big").read_bytes() == (source / "big").read_bytes()
    assert (job.directory / "back/sub/empty").is_dir()
    assert gateway.leftovers() == []


def test_a_file_and_a_directory_of_one_name(job: Job, gateway: Gateway) -> None:
    gateway.client().put_object(Bucket="twins", Key="d/a", Body=b"1")
    (job.directory / "local/a").mkdir(parents=True)
    said = job(
        """
try:
    mox.file.copy_parallel("obs://twins/d", "local")
except mox.file.MoxFileNameDuplicateException as error:
    print(error)
"""
    )
    assert said.startswith("local/a would be a file and a directory")


def test_what_the_store_refuses(job: Job) -> None:
    said = job(
        """
try:
    mox.file.read("obs://refused/none")
except mox.file.MoxFileRespException as error:
    print(error.resp.status, error.resp.errorCode, isinstance(error, FileNotFoundError))
mox.file.set_auth(ak="AKIDnobody", sk="wrong", retry=2, obs_client_log=False)
try:
    mox.file.list_directory("obs://refused/")
except mox.file.MoxFileRespException as error:
    print(error.resp.status, error.resp.errorCode, "AWS" in str(error))
"""
    )
    assert said.splitlines() == ["404 NoSuchBucket True", "403 InvalidAccessKeyId False"]


def test_shift_lets_pythons_own_functions_take_urls(job: Job) -> None:
    said = job(
        """
import glob, os, shutil
original = os.listdir
mox.file.shift("os", "mox")
os.makedirs("obs://shifted/made", exist_ok=True)
with open("obs://shifted/d/file.txt", "w") as file:
    file.write("text")
print(os.listdir("obs://shifted"), os.listdir("."), open("obs://shifted/d/file.txt").read())
print(os.path.exists("obs://shifted/d"), os.path.isdir("obs://shifted/d"), os.path.isfile("obs://shifted/d/file.txt"))
print(os.path.getsize("obs://shifted/d/file.txt"), glob.glob("obs://shifted/*/*.txt"), os.stat("obs://shifted/d/file.txt").st_size)
shutil.copyfile("obs://shifted/d/file.txt", "local.txt")
os.rename("obs://shifted/d/file.txt", "obs://shifted/e.txt")
os.remove("obs://shifted/e.txt")
print([(where, files) for where, _, files in os.walk("obs://shifted")], os.path.isfile("local.txt"), os.stat("local.txt").st_size)
mox.file.shift("mox", "os")
print(os.listdir is original)
"""  # noqa: E501
    )
    assert said.splitlines() == [
        "['d', 'made'] [] text",
        "True True True",
        "4 ['obs://shifted/d/file.txt'] 4",
        "[('obs://shifted', []), ('obs://shifted/made', [])] True 4",
        "True",
    ]


def test_another_moxing_goes_before_this_one(job: Job, tmp_path: Path) -> None:
    theirs = tmp_path / "site/moxing"
    theirs.mkdir(parents=True)
    # Python searches the directories of a .pth file and site-packages after PYTHONPATH.
    (theirs / "__init__.py").write_text("from . import file\nwhose = 'of the image'\n")
    (theirs / "file.py").write_text("")
    said = job.run(
        "import moxing.file\nprint(mox.whose, moxing.file.__file__)",
        python=_with_site(tmp_path, tmp_path / "site"),
    )
    assert said.stdout.split() == ["of", "the", "image", str(theirs / "file.py")], said.stderr


def test_a_directory_of_that_name_is_no_moxing(job: Job) -> None:
    (job.directory / "moxing").mkdir()
    assert job("print(mox.__version__)")


def test_frameworks_have_mox_file_and_say_what_is_missing(job: Job) -> None:
    said = job(
        """
import moxing.pytorch, moxing.tensorflow
from moxing.framework.file import file_io
from moxing.framework.util import runtime
file_io._NUMBER_OF_PROCESSES = 1
runtime.reset_logger(30)
print(moxing.tensorflow.file is mox.file, file_io.exists("/"))
try:
    moxing.tensorflow.run
except AttributeError as error:
    print(error)
"""
    )
    assert said.splitlines()[0] == "True True"
    assert said.splitlines()[1].startswith(
        "moxing.tensorflow.run is not available: this moxing has mox.file only."
    )


def test_without_an_object_store_only_local_paths_work(modules: Path, tmp_path: Path) -> None:
    job = Job(modules, tmp_path)
    said = job(
        """
mox.file.write("here", "x")
try:
    mox.file.exists("obs://b/k")
except OSError as error:
    print(error)
"""
    )
    assert "S3_ENDPOINT and AWS_ENDPOINT_URL are not set" in said


def test_it_needs_python_3_7_at_most() -> None:
    vermin = [sys.executable, "-c", "import vermin; vermin.main()"]
    command = [*vermin, "--no-tips", "--target=3.7-", "--violations", str(MODULES)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def _with_site(tmp_path: Path, site: Path) -> str:
    """An interpreter whose own packages are in `site`."""
    import venv

    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv/bin/python"
    packages = next((tmp_path / "venv/lib").glob("python*/site-packages"))
    (packages / "image.pth").write_text(f"{site}\n")
    return str(python)


class HostileStore(http.server.BaseHTTPRequestHandler):
    """A bucket at a cloud may have objects of any name; those of Turnout have none that leads out of a directory."""

    protocol_version = "HTTP/1.1"
    keys = ()

    def do_GET(self) -> None:
        body = b"mine"
        if self.path.split("?")[0].strip("/") == "store":
            entries = "".join(f"<Contents><Key>{key}</Key><Size>4</Size></Contents>" for key in self.keys)
            body = f"<ListBucketResult>{entries}</ListBucketResult>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("name", ["../out", "a/../../out", "..", "/{0}/out", "a//b", "./c", "%2e%2e/d"])
def test_no_object_gets_out_of_its_directory(modules: Path, tmp_path: Path, name: str) -> None:
    key = f"dir/{name.format(tmp_path)}"
    handler = type("Store", (HostileStore,), {"keys": (key,)})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        inside = tmp_path / "work"
        inside.mkdir()
        job = Job(modules, inside)
        job.env |= {"S3_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "S3_USE_HTTPS": "0"}
        job.env |= {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "y"}
        done = job.run('mox.file.copy_parallel("obs://store/dir", "there")')
        server.shutdown()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["work"]
    assert {path.name for path in inside.iterdir()} <= {"there"}
    if ".." in unquote(name).split("/"):
        assert "would not be below there" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert [path.read_text() for path in inside.rglob("*") if path.is_file()] == ["mine"]
