"""The commands of docs/install.md that back up and restore a data directory, run as they stand there."""

import re
import shutil
import subprocess
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.running import ROOT, Service, running

pytestmark = pytest.mark.slow

DIRECTORY = "cos://results-1250000000.cos.ap-beijing.myqcloud.com/model"
DATA, BACKUP = "/var/lib/turnout", "/backup/turnout"


def test_a_backup_made_while_a_job_runs_is_restored(tmp_path: Path) -> None:
    with running() as service:
        back_up, restore = documented_commands(service, tmp_path / "backup/turnout")
        service.start()
        service.put(f"{DIRECTORY}/weights", "0.5")
        service.create("ended", "echo", "printed before the backup")
        service.wait("ended")
        service.create("long", "sh", "-c", "echo begun; sleep 600")
        service.wait("long", "started")
        run(back_up)
        service.create("later", "echo", "after the backup")
        service.wait("later")
        service.clean()
        shutil.rmtree(service.data)

        run(restore)
        service.start()
        assert [line.Log for line in service.logs("ended")] == ["printed before the backup"]
        lost = service.wait("long")
        assert (lost["state"], lost["reason"]) == ("failed", "node lost")
        with pytest.raises(HTTPError, match="404"):
            service.native("/jobs/later")
        source = f"{DIRECTORY}:/mnt/results"
        service.create("reads", "cat", "weights", PackageDir=[source], RuntimeVersion="tia-1.7.0")
        assert service.wait("reads")["state"] == "succeeded"
        assert [line.Log for line in service.logs("reads")] == ["0.5"]


def documented_commands(service: Service, backup: Path) -> tuple[str, str]:
    """With this service's directory and this one for the backup in the place of the usual ones."""
    text = (ROOT / "docs/install.md").read_text()
    section = re.search(r"^## Backup and restore$(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    assert section
    back_up, restore = re.findall(r"^```\n(.*?)^```", section[1], re.MULTILINE | re.DOTALL)
    restore = restore.replace("systemctl start turnout\n", "")
    here = [text.replace(DATA, str(service.data)).replace(BACKUP, str(backup)) for text in (back_up, restore)]
    return here[0], here[1]


def run(script: str) -> None:
    subprocess.run(["sh", "-ec", script], check=True)
