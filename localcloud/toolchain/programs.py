# SPDX-License-Identifier: Apache-2.0
"""The executables that set-up builds with Go where the machine has none: what they are made of."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localcloud.toolchain.cache import cache_folder, content_hash
from localcloud.toolchain.pins import MODULES, module_version, provider_version

PULUMI_SDK: Final = "github.com/pulumi/pulumi/sdk/v3"
KUBERNETES_PROVIDER: Final = "github.com/pulumi/pulumi-kubernetes/provider/v4"
RECIPE: Final = "1"
"""Raised when the way of building changes, so that executables built the old way are not taken for the new ones."""

ModuleFolder = Callable[[str], Path]
"""Where the sources of a Go module lie, once they are downloaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One executable: `package` of the Go module in the folder `module`, built with `variables` set in it.

    `before` puts files beside a copy of that folder, `after` puts files beside the executable.
    """

    title: str
    module: str
    package: str
    executable: str
    version: str
    variables: tuple[tuple[str, str], ...]
    before: Callable[[Path, ModuleFolder], None] | None = None
    after: Callable[[Path, ModuleFolder], None] | None = None

    @property
    def sources(self) -> Path:
        return MODULES / self.module

    @property
    def folder(self) -> Path:
        """Where the built executable lies in the cache."""
        settings = json.dumps([RECIPE, self.package, self.variables])
        return (
            cache_folder() / f"{self.module}-{self.version}-{content_hash(self.sources.iterdir(), settings)}"
        )

    @property
    def path(self) -> Path:
        return self.folder / self.executable


def pulumi() -> Program:
    version = module_version(MODULES / "pulumi", PULUMI_SDK)
    return Program(
        title=f"Pulumi engine {version}",
        module="pulumi",
        package="github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
        executable="pulumi",
        version=version,
        variables=((f"{PULUMI_SDK}/go/common/version.Version", f"v{version}"),),
        after=_language_scripts,
    )


def kubernetes_provider() -> Program:
    version = provider_version("kubernetes")
    return Program(
        title=f"Kubernetes provider {version}",
        module="kubernetes-provider",
        package=".",
        executable="pulumi-resource-kubernetes",
        version=version,
        variables=((f"{KUBERNETES_PROVIDER}/pkg/version.Version", version),),
        before=_embedded_files,
    )


def control_plane() -> Program:
    version = module_version(MODULES / "control-plane", "k8s.io/kubernetes")
    major, minor = version.split(".")[:2]
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return Program(
        title=f"Kubernetes control plane {version}",
        module="control-plane",
        package=".",
        executable="kube",
        version=version,
        variables=tuple((f"k8s.io/component-base/version.{name}", value) for name, value in values.items()),
    )


def rule_engine() -> Program:
    """For the tests of the alert rules; the local cloud does without."""
    version = module_version(MODULES / "rule-engine", "github.com/prometheus/prometheus")
    return Program(
        title=f"Prometheus' rule engine {version}",
        module="rule-engine",
        package=".",
        executable="rule-engine",
        version=version,
        variables=(),
    )


def _language_scripts(folder: Path, module_folder: ModuleFolder) -> None:
    """The SDK's own scripts that run a Python program and a Python dynamic provider."""
    sdk = module_folder(PULUMI_SDK)
    for script in ("cmd/pulumi-language-python-exec", "dist/pulumi-resource-pulumi-python"):
        target = folder / Path(script).name
        shutil.copyfile(sdk / "python" / script, target)
        target.chmod(0o755)


def _embedded_files(folder: Path, module_folder: ModuleFolder) -> None:
    """What upstream's build generates: the schema with its version, and the mapping from Terraform."""
    upstream = module_folder(KUBERNETES_PROVIDER) / "cmd" / "pulumi-resource-kubernetes"
    schema = json.loads((upstream / "schema.json").read_text())
    (folder / "schema.json").write_text(json.dumps({**schema, "version": provider_version("kubernetes")}))
    shutil.copyfile(upstream / "terraform-mapping.json", folder / "terraform-mapping.json")
