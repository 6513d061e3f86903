# SPDX-License-Identifier: Apache-2.0
"""Pyroscope's chart and disk."""

from pydantic import Field

from .base import Part


class Pyroscope(Part):
    """Pyroscope's chart, and the disk that it keeps profiles on."""

    chart: str = Field(
        default="oci://ghcr.io/grafana/helm-charts/pyroscope",
        pattern=r"^(oci://|https://|\./|/)\S+$",
        description="a chart's address (oci:// or https://) or a folder (./…)",
        examples=["oci://ghcr.io/grafana/helm-charts/pyroscope"],
    )
    version: str = Field(
        default="1.15.0",
        pattern=r"^\d+\.\d+\.\d+\S*$",
        description="the chart's exact version",
        examples=["1.15.0"],
    )
    disk_gib: int = Field(
        default=32,
        ge=0,
        le=32767,
        description="0 (profiles live as long as the pod) to 32767 GiB",
        examples=[32],
    )
