# SPDX-License-Identifier: Apache-2.0
"""Control groups as kernels and distributions lay them out; the files here are ordinary ones."""

from pathlib import Path

import pytest

from localcloud.node import cgroups


@pytest.fixture
def version_two(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids rdma misc\n")
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (tmp_path / "system.slice").mkdir()
    return tmp_path


@pytest.fixture
def hybrid(tmp_path: Path) -> Path:
    for name in ("cpu,cpuacct", "memory", "unified"):
        (tmp_path / name).mkdir()
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    return tmp_path


def test_version_two_is_one_hierarchy(version_two: Path) -> None:
    assert cgroups.hierarchies(version_two) == [version_two]
    assert cgroups.unified(version_two) == version_two


def test_version_one_is_a_hierarchy_for_each_mount_with_version_two_beside_them(hybrid: Path) -> None:
    assert [each.name for each in cgroups.hierarchies(hybrid)] == ["cpu,cpuacct", "memory", "unified"]
    assert cgroups.unified(hybrid) == hybrid / "unified"


def test_controllers_that_the_kubelet_needs_and_nobody_enabled_are_enabled(
    version_two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(Path, "write_text", lambda path, text: written.append(f"{path.name} {text}"))
    cgroups.enable_controllers(version_two)
    assert written == ["cgroup.subtree_control +cpuset", "cgroup.subtree_control +hugetlb"]


def test_version_one_needs_nothing_enabled(hybrid: Path) -> None:
    cgroups.enable_controllers(hybrid)
    assert not list(hybrid.rglob("cgroup.subtree_control"))


def test_other_groups_than_those_of_dead_programs_are_left_alone(
    version_two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (version_two / "gpuheap-node-1-1").mkdir()  # of init, which lives
    (version_two / "gpuheap-node-999999999-1").mkdir()
    (version_two / "gpuheap-node-999999999-1" / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    (version_two / "my-gpuheap-node-999999999-1").mkdir()
    monkeypatch.setattr(cgroups, "END_SECONDS", 0.0)
    with pytest.raises(TimeoutError, match="gpuheap-node-999999999-1 cannot be removed"):
        cgroups.sweep(version_two)  # an ordinary file keeps the folder
    assert (version_two / "gpuheap-node-999999999-1" / "cgroup.kill").read_text() == "1"
    assert (version_two / "gpuheap-node-1-1").exists()
    assert (version_two / "my-gpuheap-node-999999999-1").exists()
