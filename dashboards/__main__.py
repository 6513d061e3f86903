# SPDX-License-Identifier: Apache-2.0
"""`python -m dashboards`: writes the JSON of every dashboard beside its source."""

from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from . import gpu_memory

GENERATED = {"gpu_memory.json": gpu_memory.build}


def render(name: str) -> str:
    """The text of one generated file."""
    return JSONEncoder(sort_keys=True, indent=2, ensure_ascii=False).encode(GENERATED[name]().build()) + "\n"


if __name__ == "__main__":
    for name in GENERATED:
        (Path(__file__).parent / name).write_text(render(name))
        print(f"wrote dashboards/{name}")
