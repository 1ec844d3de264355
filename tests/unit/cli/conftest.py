"""A stack as `packhorse up` would publish it."""

import pytest

from packhorse.client.stack_folder import RunningStack


@pytest.fixture
def stack() -> RunningStack:
    return RunningStack(
        publisher="http://127.0.0.1:1",
        content="http://127.0.0.1:2",
        subscribers={"sub1": "http://127.0.0.1:3"},
        cleanup="http://127.0.0.1:4",
        topology="http://127.0.0.1:5",
        jobs="http://127.0.0.1:6",
        console="http://127.0.0.1:7",
        token_file="tokens.json",
        pids={"publisher": 1},
        data="data",
    )
