"""Checks machine types, and the accelerators and disks that they support."""

import difflib
import re

from turnout.dialects.vertex import catalogue
from turnout.dialects.vertex.protobuf.field_path import MAX_QUOTED, FieldPath, quoted
from turnout.dialects.vertex.wire import (
    AcceleratorType,
    DiskSpec,
    MachineSpec,
    ReservationAffinity,
    WorkerPoolSpec,
)
from turnout.job import Resources
from turnout.job.resources import GIB

DISK_TYPES = ("pd-ssd", "pd-standard", "hyperdisk-balanced")
SMALLEST_DISK, LARGEST_DISK = 100, 64_000
RESERVATION_NAME = "compute.googleapis.com/reservation-name"

_NONE = AcceleratorType.ACCELERATOR_TYPE_UNSPECIFIED
_PARTITION = re.compile(r"[0-9]g\.[0-9]+gb")
_TOPOLOGY = re.compile(r"[0-9]+(?:x[0-9]+){1,2}")
_Affinity = ReservationAffinity.Type


def check(pool: WorkerPoolSpec, path: FieldPath) -> None:
    """Raises Invalid."""
    machine = path / "machineSpec"
    _check_machine(pool.machine_spec or MachineSpec(), machine)
    if pool.disk_spec:
        _check_disk(pool.disk_spec, path / "diskSpec")


def resources(spec: MachineSpec, disk: DiskSpec | None = None) -> Resources:
    """The resources of a machine spec that passed `check`, built-in accelerators included."""
    machine = catalogue.machine_types()[spec.machine_type]
    gpus = 0 if machine.tpu else machine.count or spec.accelerator_count
    size = disk.boot_disk_size_gb * GIB if disk else 0
    return Resources.of(cores=machine.cpu, memory=int(machine.memory * GIB), gpus=gpus, disk=size)


def wants_tpu(spec: MachineSpec) -> bool:
    return catalogue.machine_types()[spec.machine_type].tpu


def _check_machine(spec: MachineSpec, path: FieldPath) -> None:
    if not spec.machine_type:
        raise (path / "machineType").missing()
    machine = catalogue.machine_types().get(spec.machine_type)
    if machine is None:
        close = difflib.get_close_matches(spec.machine_type[:MAX_QUOTED], catalogue.machine_types(), 3)
        hint = f"did you mean {', '.join(close)}?" if close else "use one such as n1-standard-4."
        raise (path / "machineType").invalid(f"{quoted(spec.machine_type)} is not a machine type; {hint}")
    _check_accelerator(spec, machine, path)
    if spec.tpu_topology and not (machine.tpu and _TOPOLOGY.fullmatch(spec.tpu_topology)):
        raise (path / "tpuTopology").invalid(
            f"{quoted(spec.tpu_topology)} must be a topology such as 2x2x1, on a machine with TPUs."
        )
    if spec.reservation_affinity:
        _check_affinity(spec.reservation_affinity, path / "reservationAffinity")


def _check_accelerator(spec: MachineSpec, machine: catalogue.MachineType, path: FieldPath) -> None:
    kind, count = spec.accelerator_type, spec.accelerator_count
    if count < 0:
        raise (path / "acceleratorCount").invalid(f"it must be at least 0, not {count}.")
    if kind is _NONE and count:
        raise (path / "acceleratorType").missing(" with acceleratorCount")
    if kind is not _NONE and not count:
        raise (path / "acceleratorCount").missing(" with acceleratorType")
    if machine.accelerator:
        _check_built_in(spec, machine, path)
    elif machine.tpu:
        _check_tpu(spec, path)
    elif kind is not _NONE:
        _check_attached(spec, path)
    if spec.gpu_partition_size:
        if not _PARTITION.fullmatch(spec.gpu_partition_size):
            raise (path / "gpuPartitionSize").invalid(
                f"{quoted(spec.gpu_partition_size)} must be a partition such as 1g.10gb."
            )
        if count != 1:
            raise (path / "acceleratorCount").invalid(f"with gpuPartitionSize it must be 1, not {count}.")


def _check_built_in(spec: MachineSpec, machine: catalogue.MachineType, path: FieldPath) -> None:
    kind, count = spec.accelerator_type, spec.accelerator_count
    if kind is not _NONE and kind.name != machine.accelerator:
        raise (path / "acceleratorType").invalid(
            f"{spec.machine_type} has {machine.accelerator}, not {kind.name}."
        )
    # A partition is one slice of one accelerator.
    if count and count != machine.count and not spec.gpu_partition_size:
        raise (path / "acceleratorCount").invalid(f"{spec.machine_type} has {machine.count}, not {count}.")


def _check_tpu(spec: MachineSpec, path: FieldPath) -> None:
    kind, count = spec.accelerator_type, spec.accelerator_count
    if kind is not _NONE and not kind.name.startswith("TPU_"):
        raise (path / "acceleratorType").invalid(f"{spec.machine_type} has TPUs, not {kind.name}.")
    if spec.machine_type == "cloud-tpu" and count != 8 and (not count or count % 32):
        raise (path / "acceleratorCount").invalid(f"cloud-tpu has 8, or 32 and multiples of it, not {count}.")


def _check_attached(spec: MachineSpec, path: FieldPath) -> None:
    kind, count = spec.accelerator_type.name, spec.accelerator_count
    allowed = catalogue.attachable_accelerators()
    counts = allowed.get((spec.machine_type, kind))
    if counts is None:
        kinds = [accelerator for machine, accelerator in allowed if machine == spec.machine_type]
        fits = (
            f"use one of {', '.join(kinds)}" if kinds else "it supports no accelerators; some n1 machines do"
        )
        raise (path / "acceleratorType").invalid(f"{spec.machine_type} cannot have {kind}: {fits}.")
    if count not in counts:
        *others, last = map(str, counts)
        choice = f"{', '.join(others)} or {last}" if others else last
        raise (path / "acceleratorCount").invalid(
            f"{spec.machine_type} can have {choice} of {kind}, not {count}."
        )


def _check_affinity(affinity: ReservationAffinity, path: FieldPath) -> None:
    kind = affinity.reservation_affinity_type
    if kind is _Affinity.TYPE_UNSPECIFIED:
        raise (path / "reservationAffinityType").missing()
    if kind is not _Affinity.SPECIFIC_RESERVATION:
        for name, given in (("key", affinity.key), ("values", affinity.values)):
            if given:
                raise (path / name).invalid(
                    f"it can be set with SPECIFIC_RESERVATION only, not with {kind.name}."
                )
        return
    if affinity.key != RESERVATION_NAME:
        raise (path / "key").invalid(f"{quoted(affinity.key)} must be {RESERVATION_NAME}.")
    if not affinity.values or not all(affinity.values):
        raise (path / "values").missing(": the full names of reservations")


def _check_disk(disk: DiskSpec, path: FieldPath) -> None:
    if disk.boot_disk_type and disk.boot_disk_type not in DISK_TYPES:
        raise (path / "bootDiskType").invalid(
            f"{quoted(disk.boot_disk_type)} must be one of {', '.join(DISK_TYPES)}."
        )
    size = disk.boot_disk_size_gb
    if size and not SMALLEST_DISK <= size <= LARGEST_DISK:
        raise (path / "bootDiskSizeGb").invalid(
            f"it must be from {SMALLEST_DISK} to {LARGEST_DISK}, not {size}."
        )
