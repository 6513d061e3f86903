# SPDX-License-Identifier: Apache-2.0
"""Builds stand-ins for the NVIDIA libraries that PyTorch is linked with, so that its wheel runs without any of them.

libcudart, libnvidia-ml and parts of cuBLAS are written here. Of all else, every function that PyTorch imports is there
and fails as not supported. Which libraries and functions these are is read from PyTorch's own libraries.
"""

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent
RUNTIME: Final = "libcudart.so.13"
DRIVER: Final = "libcuda.so.1"
NVML: Final = "libnvidia-ml.so.1"
FUNCTIONS: Final = "libstandin-functions.so"
FLAGS: Final = ("-g", "-O1", "-fPIC", "-fvisibility=hidden", "-shared", "-pthread")
WARNINGS: Final = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")

NVIDIA_FUNCTION: Final = re.compile(
    r"(?:cublas|cudnn|cufft|cupti|cusolver|cusparse|cuFile|nccl|nvrtc|nvshmem)\w+"
)
RUNTIME_FUNCTION: Final = re.compile(r"cuda[A-Z]\w+")
NVIDIA_LIBRARY: Final = re.compile(r"lib(?:cu|nccl|nv)\S+")

NOT_SUPPORTED: Final = 801
"""cudaErrorNotSupported; to the other libraries it is an error that they have no name for."""

STUBS: Final = """\
#define SUCCEEDS(name) __attribute__((visibility("default"), alias("succeeds"))) int name(void)
#define FAILS(name) __attribute__((visibility("default"), alias("fails"))) int name(void)

int succeeds(void)
{{
	return 0;
}}

int fails(void)
{{
	return {not_supported};
}}

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imports:
    """What PyTorch's libraries take from NVIDIA's: names of functions and of libraries."""

    functions: frozenset[str]
    libraries: frozenset[str]

    @classmethod
    def of(cls, libraries: Iterable[Path]) -> "Imports":
        files = sorted(libraries)
        wanted = _words(["nm", "-D", "--undefined-only", *files], r" [UwW] ([^@\s]+)")
        needed = _words(["readelf", "--dynamic", "--wide", *files], r"\(NEEDED\).*\[(.+)\]")
        return cls(
            functions=frozenset(wanted - _defined(*files)),
            libraries=frozenset(filter(NVIDIA_LIBRARY.fullmatch, needed)) - {path.name for path in files},
        )


def build(folder: Path, *, torch: Path, headers: Path) -> None:
    """Into `folder`, beside the stand-in driver. `torch` is the folder of its libraries, `headers` that of cuda.h.

    Raises CalledProcessError, or FileNotFoundError without gcc or binutils.
    """
    imports = Imports.of(torch.glob("*.so"))
    _runtime(folder, imports, headers)
    _compile(folder / NVML, SOURCES / "nvml.c")
    _functions(folder, imports)
    for name in imports.libraries - {RUNTIME, DRIVER}:
        # The functions are in a library of another name: glibc aborts on a symbol with a version when the very library
        # that it names has no versions.
        _compile(folder / name, _empty(folder), "-Wl,--no-as-needed", f"-L{folder}", f"-l:{FUNCTIONS}")


def _runtime(folder: Path, imports: Imports, headers: Path) -> None:
    versions = folder / "cudart.map"
    versions.write_text(f"{RUNTIME} {{ global: cuda*; __cuda*; local: *; }};\n")
    sources = [SOURCES / f"{name}.c" for name in ("driver", "devices", "kernels", "memory", "streams")]
    written = folder / "libcudart-written.so"
    _compile(written, *sources, "-isystem", headers, *WARNINGS)
    rest = set(filter(RUNTIME_FUNCTION.fullmatch, imports.functions)) - _defined(written)
    stubs = _stubs(folder / "cudart_stubs.c", rest, succeed=())
    script = f"-Wl,--version-script={versions}"
    _compile(folder / RUNTIME, *sources, stubs, "-isystem", headers, *WARNINGS, script)


def _functions(folder: Path, imports: Imports) -> None:
    cublas = SOURCES / "cublas.c"
    written = folder / "libcublas-written.so"
    _compile(written, cublas, *WARNINGS)
    rest = set(filter(NVIDIA_FUNCTION.fullmatch, imports.functions)) - _defined(written)
    stubs = _stubs(
        folder / "stubs.c", rest, succeed=tuple(name for name in rest if name.startswith("cublas"))
    )
    _compile(folder / FUNCTIONS, cublas, stubs, *WARNINGS)


def _stubs(source: Path, names: Iterable[str], *, succeed: tuple[str, ...]) -> Path:
    lines = [f"{'SUCCEEDS' if name in succeed else 'FAILS'}({name});" for name in sorted(names)]
    source.write_text(STUBS.format(not_supported=NOT_SUPPORTED) + "\n".join(lines) + "\n")
    return source


def _empty(folder: Path) -> Path:
    source = folder / "empty.c"
    source.write_text("")
    return source


def _compile(target: Path, *arguments: str | Path) -> None:
    subprocess.run(
        ["gcc", *FLAGS, f"-Wl,-soname,{target.name}", "-o", target, *arguments, "-ldl"], check=True
    )


def _defined(*libraries: Path) -> set[str]:
    return _words(["nm", "-D", "--defined-only", *libraries], r" [A-Za-z] ([^@\s]+)")


def _words(command: list[str | Path], pattern: str) -> set[str]:
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(re.findall(pattern, text))
