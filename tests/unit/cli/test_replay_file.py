"""What a file of requests, or a pipe of them, is read as."""

import fcntl
import io
import os
import resource
from pathlib import Path

import pytest

from packhorse_services.cli.distribute.replay_file import (
    BadLine,
    _Patient,
    batches,
    count,
    lines,
    opened,
)


@pytest.mark.parametrize("lowest", [0, 1_500])
def test_what_a_pipe_has_is_sent_while_its_writer_thinks(lowest: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_048), hard))
    low, writes = os.pipe()
    reads = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(low)
    with io.BufferedReader(_Patient(reads)) as file, open(writes, "wb", buffering=0) as pipe:  # noqa: PTH123
        pipe.write(b"/a\n# and\n/b\n")
        found = batches(file, 100)
        assert [line.text for line in next(found)] == [b"/a", b"/b"]
        pipe.write(b"/c\n" * 5)
        pipe.close()
        assert [len(batch) for batch in batches(file, 2)] == [2, 2, 1]
    os.close(reads)


def test_what_a_named_pipe_has_is_sent_while_its_writer_thinks(tmp_path: Path) -> None:
    path = tmp_path / "requests"
    os.mkfifo(path)
    writes = os.open(path, os.O_RDWR)  # opening it for one side alone waits for the other
    with opened(str(path)) as file:
        os.write(writes, b"/a\n/b\n")
        found = batches(file, 100)
        assert [line.text for line in next(found)] == [b"/a", b"/b"]
    os.close(writes)


def test_lines_keep_their_numbers_whatever_is_between() -> None:
    long = b"/" + b"x" * 3_000_000
    text = b"#c\r\n\r\n/a\r\n" + long + b"\n\xff\n[1]\n/last"
    found = list(lines(io.BytesIO(text)))
    assert [line.sequence for line in found] == [3, 4, 5, 6, 7]
    assert count(io.BytesIO(text)) == 5
    assert found[0].body("ADD", deep=True) == {"action": "ADD", "deep_paths": ["/a"]}
    for line, why in ((found[1], "longer"), (found[2], "UTF-8")):
        with pytest.raises(BadLine, match=why):
            line.body("ADD", deep=False)
    assert found[4].text == b"/last"


@pytest.mark.parametrize("text", ['{"path": "/a"}', "{", '{"paths": NaN', "{" * 100_000])
def test_json_that_is_no_request_is_distinguished(text: str) -> None:
    [line] = lines(io.BytesIO(text.encode()))
    with pytest.raises(BadLine):
        line.body("ADD", deep=False)
