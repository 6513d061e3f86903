# SPDX-License-Identifier: Apache-2.0
"""How much memory a GPU has, by the size of its virtual machine. Pure.

From the tables of https://learn.microsoft.com/azure/virtual-machines/sizes/overview#gpu-accelerated, in GiB as the
driver reports them. A size that stands in no row has no known capacity: an alert about it needs the exporter of DCGM.
"""

import re
from typing import Final

_GIB: Final = 1 << 30

_SIZES: Final = (
    (r"NC\d+ads_A100_v4", 80.0),
    (r"ND96asr_v4", 40.0),
    (r"ND96amsr_A100_v4", 80.0),
    (r"NCC?\d+adi?s_H100_v5", 93.6),
    (r"ND96is(r?)_H100_v5", 79.6),
    (r"ND96is(r?)_H200_v5", 140.4),
    (r"ND96is(r?)_MI300X_v5", 192.0),
    (r"NC\d+as_T4_v3", 15.0),
    (r"NC\d+r?s_v3", 16.0),
    (r"ND40rs_v2", 32.0),
    (r"NV(36|72)adm?s_A10_v5", 24.0),
    (r"NV18ads_A10_v5", 12.0),
    (r"NV12ads_A10_v5", 8.0),
    (r"NV6ads_A10_v5", 4.0),
)

# https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html: eighths of the memory.
_MIG_EIGHTHS: Final = {"1g": 1, "2g": 2, "3g": 4, "4g": 4, "7g": 8}


def gpu_bytes(vm_size: str, mig_profile: str | None = None) -> int | None:
    """The memory of one GPU of the size, or of one slice; None where it is not known.

    `mig_profile` is Azure's word, `MIG1g` or `1g`.
    """
    for pattern, gib in _SIZES:
        if re.fullmatch(f"Standard_(?:{pattern})", vm_size, re.IGNORECASE):
            whole = int(gib * _GIB)
            if mig_profile is None:
                return whole
            eighths = _MIG_EIGHTHS.get(mig_profile.lower().removeprefix("mig"))
            return whole * eighths // 8 if eighths else None
    return None
