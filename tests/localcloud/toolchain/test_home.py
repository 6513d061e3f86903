# SPDX-License-Identifier: Apache-2.0
"""The Pulumi home: each plugin in the version that the SDKs ask for, real, the user's, or ours."""

import json
import os
import signal
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from localcloud.plugin.language.prepared import VARIABLE, prepared_python
from localcloud.toolchain import Tools, pulumi_home


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    scripts = tmp_path / "engine"
    scripts.mkdir()
    for name in (
        "pulumi",
        "pulumi-language-python-exec",
        "pulumi-resource-pulumi-python",
        "kubernetes",
        "kube",
    ):
        (scripts / name).touch()
    return Tools(
        pulumi=scripts / "pulumi",
        language_scripts=scripts,
        kubernetes_provider=scripts / "kubernetes",
        control_plane=scripts / "kube",
        random_provider=None,
        docker_build_provider=None,
    )


def _names(home: Path) -> set[str]:
    return {str(path.relative_to(home / "plugins")) for path in home.glob("plugins/*/*")}


def _asked_for(package: str) -> str:
    """The plugin version that an installed SDK asks the engine for."""
    version: str = json.loads((files(package) / "pulumi-plugin.json").read_text())["version"]
    return version


@pytest.mark.parametrize("name", ["azure-native", "docker-build", "kubernetes", "random"])
def test_each_provider_is_there_in_the_version_that_its_sdk_asks_for(
    tmp_path: Path, tools: Tools, name: str
) -> None:
    version = _asked_for(f"pulumi_{name.replace('-', '_')}")
    home = pulumi_home(tmp_path, tools)
    assert home == tmp_path / "pulumi-home"
    assert (home / "plugins" / f"resource-{name}-v{version}" / f"pulumi-resource-{name}").exists()


def test_the_language_host_is_ours_only_where_the_engine_has_none(tmp_path: Path, tools: Tools) -> None:
    ours = _names(pulumi_home(tmp_path / "one", tools))
    official = Tools(
        pulumi=tools.pulumi,
        language_scripts=None,
        kubernetes_provider=tools.kubernetes_provider,
        control_plane=tools.control_plane,
        random_provider=None,
        docker_build_provider=None,
    )
    theirs = _names(pulumi_home(tmp_path / "other", official))
    assert {name.rsplit("/")[-1] for name in ours - theirs} == {
        "pulumi-language-python",
        "pulumi-resource-pulumi-python",
    }


def test_the_users_official_plugins_are_linked_and_azure_is_always_simulated(
    tmp_path: Path, tools: Tools
) -> None:
    official = tmp_path / "official"
    official.touch()
    with_official = Tools(
        pulumi=tools.pulumi,
        language_scripts=tools.language_scripts,
        kubernetes_provider=tools.kubernetes_provider,
        control_plane=tools.control_plane,
        random_provider=official,
        docker_build_provider=None,
    )
    home = pulumi_home(tmp_path, with_official)
    (random,) = home.glob("plugins/resource-random-*/*")
    (azure,) = home.glob("plugins/resource-azure-native-*/*")
    assert random.readlink() == official
    assert "localcloud.azure.native" in azure.read_text()


def test_laying_it_out_again_removes_what_is_pinned_no_longer(tmp_path: Path, tools: Tools) -> None:
    home = pulumi_home(tmp_path, tools)
    first = _names(home)
    (home / "plugins" / "resource-random-v0.0.1").mkdir()
    (home / "plugins" / "resource-random-v0.0.1.lock").touch()
    pulumi_home(tmp_path, tools)
    assert _names(home) == first
    assert {path.name for path in (home / "plugins").iterdir()} == {name.split("/")[0] for name in first}


def test_a_launcher_does_not_take_modules_of_the_folder_it_is_started_in(
    tmp_path: Path, tools: Tools
) -> None:
    home = pulumi_home(tmp_path, tools, python=Path(sys.executable))
    (launcher,) = home.glob("plugins/resource-random-*/*")
    (tmp_path / "localcloud.py").write_text("raise SystemExit('the wrong module')")
    with subprocess.Popen(
        [launcher, "127.0.0.1:1"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as plugin:
        assert plugin.stdout is not None
        port = plugin.stdout.readline()
        plugin.terminate()
    assert port.strip().isdigit(), "the first line is the port that the engine connects to"
    assert plugin.returncode == 0


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGKILL])
def test_a_launcher_has_its_plugin_run_by_a_prepared_python_and_takes_it_along(
    tmp_path: Path, tools: Tools, ended_by: signal.Signals
) -> None:
    (launcher,) = pulumi_home(tmp_path, tools, python=Path(sys.executable)).glob(
        "plugins/resource-random-*/*"
    )
    with prepared_python(tmp_path / "python", modules=[]):
        environment = {**os.environ, VARIABLE: str(tmp_path / "python")}
        command = [str(launcher), "127.0.0.1:1"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as plugin:
            assert plugin.stdout is not None
            assert plugin.stdout.readline().strip().isdigit(), "the port that the engine connects to"
            assert "plugin.copied" in Path(f"/proc/{plugin.pid}/cmdline").read_text()
            plugin.send_signal(ended_by)
            assert plugin.stdout.read() == "", "ends when the last process ends that holds it"
        assert plugin.returncode == (0 if ended_by == signal.SIGINT else -ended_by)
