"""Which texts are paths (R29)."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from packhorse.content.node import MAX_PATH_BYTES, InvalidPath, check_path

TEXTS = st.text(st.sampled_from("/.aZ~ \t\x1f\x7f\x80é\ud800"), max_size=8)


def is_path(text: str) -> bool:
    """R29 by the letter."""
    if text == "/":
        return True
    if not text.startswith("/") or re.search("[\x00-\x1f\x7f-\x9f\ud800-\udfff]", text):
        return False
    segments = text[1:].split("/")
    return len(text.encode()) <= MAX_PATH_BYTES and not {"", ".", ".."} & set(segments)


@given(TEXTS | TEXTS.map(lambda text: "/" + text))
@example("/a/./b")
@example("/a/..")
@example("/.a/..b/c.d")
@example("/a//b")
@example("/a/")
@example("/" + "a" * 2_047)
@example("/" + "a" * 2_048)
@example("/" + "é" * 1_024)
def test_r29_a_path_is_taken_as_it_is_or_refused(text: str) -> None:
    if is_path(text):
        assert check_path(text) == text
    else:
        with pytest.raises(InvalidPath):
            check_path(text)
