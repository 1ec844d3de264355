"""Where a client finds the services of a stack."""

from pathlib import Path

import pytest

from packhorse.client.addresses import Addresses
from packhorse.client.errors import Misused
from packhorse.client.stack_folder import RunningStack, StackFolder


class Folder(StackFolder):
    """Of a stack that runs."""

    def running(self) -> RunningStack:
        return RunningStack(
            publisher="http://127.0.0.1:1",
            content="http://127.0.0.1:2",
            subscribers={"sub1": "http://127.0.0.1:3", "sub2": "http://127.0.0.1:4"},
            cleanup="http://127.0.0.1:5",
            topology="http://127.0.0.1:6",
            jobs="http://127.0.0.1:7",
            console="http://127.0.0.1:8",
            token_file="tokens.json",
            pids={},
            data="data",
        )


def test_of_several_subscribers_the_one_that_is_meant_has_to_be_named(tmp_path: Path) -> None:
    stack = Addresses(stack=Folder(tmp_path))
    assert stack.url("jobs") == "http://127.0.0.1:7"
    known = "the subscribers sub1 at http://127.0.0.1:3, sub2 at http://127.0.0.1:4: name the URL"
    with pytest.raises(Misused, match=known):
        stack.url("subscriber")
    with pytest.raises(Misused, match="has no pipeline service"):
        stack.url("pipeline")


def test_a_stack_knows_its_subscribers_by_their_names(tmp_path: Path) -> None:
    stack = Addresses(stack=Folder(tmp_path), options={"subscriber": "--subscriber-url"})
    assert stack.url("subscriber", "sub2") == "http://127.0.0.1:4"
    assert stack.url("content", "sub1") == "http://127.0.0.1:3", "what sub2 is compared with"
    with pytest.raises(Misused, match=r"no --subscriber-url was given, and the stack .* no sub9"):
        stack.url("subscriber", "sub9")
    told = Addresses({"subscriber": "http://elsewhere.example"}, stack=Folder(tmp_path))
    assert told.url("subscriber", "sub1") == "http://elsewhere.example"
