"""The machine's CPUs and GPUs as answers name them."""

import platform
from pathlib import Path

import pytest

from turnout.dialects.modelarts.catalogue import host

INFORMATION = """Model: \t\t {model}
IRQ:   \t\t 44
GPU UUID: \t GPU-5b2c
"""


@pytest.mark.parametrize(("machine", "arch"), [("x86_64", "x86"), ("aarch64", "arm"), ("riscv64", "riscv64")])
def test_the_architecture(machine: str, arch: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert host.cpu_arch() == arch


@pytest.mark.parametrize(
    ("model", "gpu"),
    [
        ("NVIDIA A100-SXM4-40GB", host.Gpu("NVIDIA-A100-SXM4-40GB", "40GB")),
        ("Tesla T4", host.Gpu("Tesla-T4", "")),
    ],
)
def test_the_model_of_a_gpu(model: str, gpu: host.Gpu, tmp_path: Path):
    for bus in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "information").write_text(INFORMATION.format(model=model))
    assert host.gpu(tmp_path) == gpu


def test_a_machine_without_gpus(tmp_path: Path):
    assert host.gpu(tmp_path / "none") is None
