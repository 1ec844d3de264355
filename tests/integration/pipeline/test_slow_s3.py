"""Files on an S3 server that stands still for a while: the task that writes them waits for it."""

import signal
import threading

import pytest

from packhorse_services.pipeline.storage import arrow_files
from packhorse_services.pipeline.storage.location import Location
from tests.harness.s3 import S3Server
from tests.harness.waiting import pause

pytestmark = pytest.mark.s3

STILL_S = 15.0
"""Longer than all that Arrow would wait by itself."""


def test_a_server_that_stands_still_fails_no_task(s3: S3Server) -> None:
    location = Location.parse(s3.url("slow"))
    files, name = arrow_files.filesystem(location), arrow_files.path(location, "table/file")
    goes_on = threading.Timer(STILL_S, s3.process.send_signal, [signal.SIGCONT])
    pause(s3.process.pid)
    goes_on.start()
    try:
        with files.open_output_stream(name) as file:
            file.write(b"rows")
    finally:
        goes_on.join()
    with files.open_input_file(name) as file:
        assert file.read() == b"rows"
