# SPDX-License-Identifier: Apache-2.0
"""`python -m gpuheap` is the command `gpuheap`."""

from gpuheap.cli.main import main

main()
