"""What a client breaks off is let go of."""

import http.client
import os
import time

from tests.running import running


def test_downloads_that_are_broken_off_keep_no_file_open():
    with running() as service:
        service.start()
        assert service.process
        (service.data / "buckets/leaky").mkdir(parents=True)
        with (service.data / "buckets/leaky/large").open("wb") as file:
            file.truncate(200 << 20)
        paths = ["/storage/v1/b/leaky/o/large?alt=media"] * 20
        before = _open_files(service.process.pid)
        for path in paths:
            connection = http.client.HTTPConnection("127.0.0.1", service.port)
            connection.request("GET", path)
            assert len(connection.getresponse().read(1000)) == 1000
            connection.close()
        deadline = time.monotonic() + 20
        while _open_files(service.process.pid) > before + 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert _open_files(service.process.pid) <= before + 5


def _open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
