"""Memory limits and cores, read from made-up machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bigsvm.machine import MemoryLimit, anonymous_bytes, core_count, memory_limit, resident_peak_bytes
from bigsvm.units import GIB, MIB

V2_MOUNT = "30 24 0:26 {root} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNT = "31 24 0:27 {root} /sys/fs/cgroup/{name} rw,nosuid shared:5 - cgroup cgroup rw,{name}"


class Machine:
    """A folder that looks like / to the reader."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/meminfo", f"MemTotal: {8 * GIB >> 10} kB\nMemFree: 1 kB\n")
        self.write("proc/self/cgroup", "")
        self.write("proc/self/mountinfo", "22 1 0:20 / /proc rw shared:1 - proc proc rw\n")

    def write(self, path: str, content: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n" if content != "" else "")

    def groups(self, *lines: str) -> None:
        self.write("proc/self/cgroup", "\n".join(lines))

    def mounts(self, *lines: str) -> None:
        self.write("proc/self/mountinfo", "\n".join(lines))

    @property
    def limit(self) -> MemoryLimit:
        return memory_limit(self.root)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_groups_the_physical_memory_counts(machine: Machine) -> None:
    assert machine.limit == MemoryLimit(8 * GIB, "physical memory")


def test_without_cgroup_files_too(machine: Machine) -> None:
    (machine.root / "proc/self/cgroup").unlink()
    assert machine.limit.nbytes == 8 * GIB


def test_v2_own_group(machine: Machine) -> None:
    machine.groups("0::/user.slice/job")
    machine.mounts(V2_MOUNT.format(root="/"))
    machine.write("sys/fs/cgroup/user.slice/job/memory.max", GIB)
    assert machine.limit == MemoryLimit(GIB, "cgroup v2 memory.max")


def test_v2_a_group_above_is_tighter(machine: Machine) -> None:
    machine.groups("0::/a/b/c")
    machine.mounts(V2_MOUNT.format(root="/"))
    machine.write("sys/fs/cgroup/a/b/c/memory.max", "max")
    machine.write("sys/fs/cgroup/a/b/memory.max", 3 * GIB)
    machine.write("sys/fs/cgroup/a/memory.max", 2 * GIB)
    assert machine.limit.nbytes == 2 * GIB


def test_v2_high_counts_and_low_does_not(machine: Machine) -> None:
    machine.groups("0::/job")
    machine.mounts(V2_MOUNT.format(root="/"))
    machine.write("sys/fs/cgroup/job/memory.max", 4 * GIB)
    machine.write("sys/fs/cgroup/job/memory.high", 1 * GIB)
    machine.write("sys/fs/cgroup/job/memory.low", 1 * MIB)
    assert machine.limit == MemoryLimit(GIB, "cgroup v2 memory.high")


def test_v2_in_a_container_the_mount_has_a_root_of_its_own(machine: Machine) -> None:
    machine.groups("0::/docker/abc/inner")
    machine.mounts(V2_MOUNT.format(root="/docker/abc"))
    machine.write("sys/fs/cgroup/inner/memory.max", 2 * GIB)
    machine.write("sys/fs/cgroup/memory.max", 1 * GIB)
    assert machine.limit.nbytes == GIB


def test_v2_a_path_outside_of_the_mount_leaves_the_mount_point(machine: Machine) -> None:
    machine.groups("0::/../other")
    machine.mounts(V2_MOUNT.format(root="/"))
    machine.write("sys/fs/cgroup/memory.max", 1 * GIB)
    assert machine.limit.nbytes == GIB


def test_v1(machine: Machine) -> None:
    machine.groups("5:cpu,cpuacct:/x", "4:memory:/slurm/uid_1/job_2/step_0")
    machine.mounts(V1_MOUNT.format(root="/", name="memory"), V1_MOUNT.format(root="/", name="cpu"))
    base = "sys/fs/cgroup/memory/slurm/uid_1"
    machine.write(f"{base}/job_2/step_0/memory.limit_in_bytes", 9223372036854771712)
    machine.write(f"{base}/job_2/memory.limit_in_bytes", 512 * MIB)
    machine.write("sys/fs/cgroup/cpu/x/memory.limit_in_bytes", 1)  # of another controller: not ours
    assert machine.limit == MemoryLimit(512 * MIB, "cgroup v1 memory.limit_in_bytes")
    assert machine.limit.whose.startswith("group ")


def test_hybrid_v1_memory_beside_an_empty_v2(machine: Machine) -> None:
    machine.groups("4:memory:/job", "1:name=systemd:/job", "0::/job")
    machine.mounts(
        V1_MOUNT.format(root="/", name="memory"),
        V2_MOUNT.format(root="/").replace("group ", "group/unified ", 1),
    )
    machine.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", 256 * MIB)
    assert machine.limit.nbytes == 256 * MIB


def test_a_limit_above_the_memory_does_not_count(machine: Machine) -> None:
    machine.groups("0::/job")
    machine.mounts(V2_MOUNT.format(root="/"))
    machine.write("sys/fs/cgroup/job/memory.max", 64 * GIB)
    assert machine.limit.source == "physical memory"


def test_rlimits_count_on_the_real_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    def getrlimit(which: int) -> tuple[int, int]:
        soft = 123 * MIB if which == resource.RLIMIT_DATA else resource.RLIM_INFINITY
        return soft, resource.RLIM_INFINITY

    monkeypatch.setattr(resource, "getrlimit", getrlimit)
    assert memory_limit() == MemoryLimit(123 * MIB, "RLIMIT_DATA")


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 64), ("150000 100000", 2), ("50000 100000", 1)])
def test_cores_by_quota(machine: Machine, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    machine.groups("0::/job")
    machine.mounts(V2_MOUNT.format(root="/"))
    machine.write("sys/fs/cgroup/job/cpu.max", quota)
    assert core_count(machine.root) == cores


def test_cores_by_v1_quota_and_by_affinity(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 6})
    machine.groups("3:cpu:/job")
    machine.mounts(V1_MOUNT.format(root="/", name="cpu"))
    machine.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1")
    machine.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000")
    assert core_count(machine.root) == 3
    machine.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000")
    assert core_count(machine.root) == 2


def test_this_machine_has_sane_numbers() -> None:
    assert memory_limit().nbytes > 64 * MIB
    assert 1 <= core_count() <= len(os.sched_getaffinity(0))
    assert 1 * MIB < anonymous_bytes() <= resident_peak_bytes() * 2
