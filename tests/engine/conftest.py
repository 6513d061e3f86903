# SPDX-License-Identifier: Apache-2.0
"""All tests here run large programs, again and again: by a Python that has imported the SDKs."""

from collections.abc import Iterator

import pytest

from localcloud.plugin.language.prepared import prepared_python


@pytest.fixture(scope="session", autouse=True)
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with prepared_python(tmp_path_factory.mktemp("prepared") / "python"):
        yield
