"""What a call that is sent again says of it."""

import logging
from typing import Any

import httpx
import pytest

from packhorse.client.blocking import Client
from packhorse.client.errors import Misused, NotReached
from packhorse.client.exchange import Pause, Request, answered_by
from packhorse.client.patience import FOREVER, telling
from packhorse.client.problems import Words
from packhorse.client.sending import lost


def test_what_is_waited_for_is_told_once_it_has_lasted(caplog: pytest.LogCaptureFixture) -> None:
    patience = telling(FOREVER, "the producer nightly")
    steps = patience.with_requests_of(answered_by(Request("PUT", "/producers/nightly")))
    now, told = 0.0, []
    effect: Any = next(steps)
    with caplog.at_level(logging.INFO):
        while now < 30:
            if isinstance(effect, Pause):
                now += effect.seconds
                effect = steps.send(now)
            else:
                told.append((now, len(caplog.records)))
                effect = steps.throw(NotReached("nobody answers at http://x"))
        assert not [now for now, count in told if count and now < 5]
        [warned] = [one.getMessage() for one in caplog.records]
        while isinstance(effect, Pause):
            effect = steps.send(now)
        with pytest.raises(StopIteration):
            steps.send("answered")
    assert warned == "the producer nightly waits: nobody answers at http://x"
    assert caplog.records[-1].getMessage().startswith("the producer nightly goes on, after")


@pytest.mark.parametrize("name", ["a/b", "", "-a", "a" * 101, "\u00e4"])
def test_what_is_no_producer_says_what_is_one(name: str) -> None:
    with (
        Client("http://127.0.0.1:1") as client,
        pytest.raises(Misused, match="letters of ASCII, digits, dots, hyphens and underscores"),
    ):
        client.producer(name)


@pytest.mark.parametrize("condition", ["If-Match", "If-None-Match"])
def test_what_depends_on_a_state_is_not_sent_again_where_it_may_have_changed_that(
    condition: str,
) -> None:
    assert not Request("PUT", "/a", headers={condition: "*"}).may_arrive_twice()
    assert Request("PUT", "/a").may_arrive_twice()


@pytest.mark.parametrize("error", [httpx.PoolTimeout, httpx.ConnectTimeout, httpx.ConnectError])
def test_what_had_no_connection_was_not_sent(error: type[Exception]) -> None:
    assert isinstance(lost(error("x"), "http://x", Words()), NotReached)


def test_a_lost_stream_says_why_even_where_the_error_has_no_words() -> None:
    assert "(ReadTimeout)" in str(lost(httpx.ReadTimeout(""), "http://x", Words(), stream=True))
