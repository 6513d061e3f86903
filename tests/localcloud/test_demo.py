# SPDX-License-Identifier: Apache-2.0
"""What the demo says when it fails. That it succeeds is seen by running it."""

from localcloud.demo import diagnosis

FAILED = """pulumi --non-interactive up ended with 255:
Updating (dev):
 +  kubernetes:batch/v1:Job readiness-gpu creating (0s)
 +  kubernetes:batch/v1:Job readiness-gpu **creating failed** error: 1 error occurred:
Diagnostics:
  kubernetes:batch/v1:Job (readiness-gpu):
    error: 1 error occurred:
    \t* [Pod gpu-readiness/gpu-2vrjb]: [Error] node aks-gpu-1 is not ready: its driver is 525.85.12

Outputs:
    clusterName: "gpuheap-dev"

Resources:
    + 17 created
    2 errored
"""


def test_of_a_failed_up_the_reason_alone_is_shown() -> None:
    assert diagnosis(FAILED) == (
        "pulumi --non-interactive up ended with 255:\n"
        "  kubernetes:batch/v1:Job (readiness-gpu):\n"
        "    error: 1 error occurred:\n"
        "    \t* [Pod gpu-readiness/gpu-2vrjb]: [Error] node aks-gpu-1 is not ready: its driver is 525.85.12"
    )


def test_other_errors_are_shown_as_they_are() -> None:
    assert diagnosis("no local cloud runs in x: start it") == "no local cloud runs in x: start it"
    assert diagnosis("pulumi ended with 1:\nsomething else") == "pulumi ended with 1:\nsomething else"
