"""A CDI description in the form in which NVIDIA's container toolkit writes it. No machine here has such a GPU."""

from pathlib import Path

import pytest

from turnout.engines.local.machine.node import gpu_driver
from turnout.runner.gpu_driver import parse

DESCRIPTION = """
cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-ctk
    args: [nvidia-ctk, hook, create-symlinks, --link, "libcuda.so.1::/usr/lib/libcuda.so"]
  - hookName: createContainer
    path: /usr/bin/nvidia-ctk
    args: [nvidia-ctk, hook, update-ldcache, --folder, /usr/lib/x86_64-linux-gnu]
  mounts:
  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.550
    containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.550
    options: [ro, nosuid, nodev, bind]
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
- name: "1"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
      hostPath: /dev/char/195:1
- name: all
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/nvidia1
"""


def test_a_replica_gets_its_gpus_and_the_driver(tmp_path: Path):
    (tmp_path / "nvidia.yaml").write_text(DESCRIPTION)
    (tmp_path / "other.json").write_text('{"cdiVersion": "0.5.0", "kind": "vendor.com/net", "devices": []}')
    driver = gpu_driver([str(tmp_path)])
    assert driver
    edits = driver.of([1])
    assert edits.devices == (("/dev/nvidiactl", "/dev/nvidiactl"), ("/dev/char/195:1", "/dev/nvidia1"))
    library = "/usr/lib/x86_64-linux-gnu/libcuda.so.550"
    assert edits.mounts == ((library, library),)
    assert edits.env == (("NVIDIA_VISIBLE_DEVICES", "void"),)
    assert edits.links == (("libcuda.so.1", "/usr/lib/libcuda.so"),)
    assert edits.libraries == ("/usr/lib/x86_64-linux-gnu",)
    assert {inside for _, inside in driver.of([0, 1]).devices} >= {"/dev/nvidia0", "/dev/nvidia1"}


def test_a_gpu_that_is_not_described():
    driver = parse([{"kind": "nvidia.com/gpu", "devices": [{"name": "0"}]}])
    assert driver
    with pytest.raises(LookupError, match="no GPU 3"):
        driver.of([3])


@pytest.mark.parametrize(
    "text", ["[]", "kind: nvidia.com/gpu", "kind: nvidia.com/gpu\ndevices: [5]", "{", ""]
)
def test_a_file_that_is_not_cdi_describes_nothing(tmp_path: Path, text: str):
    (tmp_path / "nvidia.yaml").write_text(text)
    assert gpu_driver([str(tmp_path)]) is None
