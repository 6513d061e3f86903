# SPDX-License-Identifier: Apache-2.0
import pytest

from gpuheap.node.log import line


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (15, "15"),
        ("http://h:4040/x", "http://h:4040/x"),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ("", '""'),
        ("new\nline", '"new\\nline"'),
        ('quote"', '"quote\\""'),
    ],
)
def test_a_value_stays_one_word_of_one_line(value: object, text: str) -> None:
    assert line("push", reason=value) == f"event=push reason={text}"
