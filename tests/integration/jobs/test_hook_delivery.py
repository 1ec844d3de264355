"""A hook and receivers that answer with other things than 2xx, late, or not at all (ADR 0101)."""

import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from packhorse.clock import SystemClock
from packhorse.jobs.consumer import Cancel, Outcome, Retry
from packhorse_services.cli.stack.ports import free_port
from packhorse_services.jobs.hooks.delivery import Delivery
from packhorse_services.jobs.hooks.hook import Hook
from tests.harness.answering import answering
from tests.harness.clock import ManualClock
from tests.harness.jobs.made import HOOK_SECRET as SECRET
from tests.harness.jobs.made import hook_job

Answer = Callable[[BaseHTTPRequestHandler], None]


def receiver(answer: Answer) -> type[BaseHTTPRequestHandler]:
    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            answer(self)

    return Receiver


def says(status: int, **headers: str) -> Answer:
    def answer(to: BaseHTTPRequestHandler) -> None:
        to.send_response(status)
        for name, value in {"content-length": "0", **headers}.items():
            to.send_header(name, value)
        to.end_headers()

    return answer


def delivery(url: str, **more: Any) -> Delivery:
    given = {"url": f"{url}/hidden", "secrets": [SECRET], "timeout_s": 60, **more}
    hook = Hook.model_validate(given)
    return Delivery(hook, ssl.create_default_context(), SystemClock())


def test_2xx_ends_it_and_the_body_is_not_read() -> None:
    with answering(receiver(says(202, **{"content-length": "1000000000"}))) as url:
        assert delivery(url)(hook_job()).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("status", "headers", "reason", "after"),
    [
        (500, {}, "the receiver answered 500", None),
        (404, {}, "the receiver answered 404", None),
        (429, {"retry-after": "7"}, "the receiver answered 429", timedelta(seconds=7)),
        (307, {"location": "http://127.0.0.1:1/"}, "redirects are not followed", None),
    ],
)
def test_what_may_be_otherwise_later_is_tried_again(
    status: int, headers: dict[str, str], reason: str, after: timedelta | None
) -> None:
    with answering(receiver(says(status, **headers))) as url, pytest.raises(Retry) as tried:
        delivery(url)(hook_job())
    assert (reason in str(tried.value), tried.value.after) == (True, after)


def test_who_is_gone_is_told_no_more() -> None:
    with answering(receiver(says(410))) as url, pytest.raises(Cancel, match="gone for good"):
        delivery(url)(hook_job())


def test_a_receiver_that_answers_bit_by_bit_does_not_hold_it() -> None:
    def drip(to: BaseHTTPRequestHandler) -> None:
        to.wfile.write(b"HTTP/1.1 200 OK\r\n")
        with suppress(OSError):
            while not threading.Event().wait(0.05):  # no step of it takes long
                to.wfile.write(b"x: y\r\n")

    with answering(receiver(drip)) as url, pytest.raises(Retry) as tried:
        delivery(url, timeout_s=0.5)(hook_job())
    assert "hidden" not in str(tried.value)


def test_who_is_not_there_is_tried_again_and_not_named() -> None:
    with pytest.raises(Retry) as tried:
        delivery(f"http://127.0.0.1:{free_port()}")(hook_job())
    assert "hidden" not in str(tried.value)


def test_a_clock_that_jumps_changes_the_time_of_a_message_alone() -> None:
    told: list[tuple[str, ...]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            names = ("webhook-timestamp", "webhook-signature", "webhook-id")
            told.append((*(str(self.headers[name]) for name in names), body))
            says(503)(self)

    now_ms = 1_700_000_000_000
    with answering(Receiver) as url:
        hook = Hook.model_validate({"url": url, "secrets": [SECRET], "timeout_s": 60})
        for jumped_ms in (now_ms, now_ms + 3_600_000, now_ms - 86_400_000):
            clock = ManualClock(wall_ms=jumped_ms)
            with pytest.raises(Retry):
                Delivery(hook, ssl.create_default_context(), clock)(hook_job())
    times, signatures, ids, bodies = map(set, zip(*told, strict=True))
    assert times == {"1700000000", "1700003600", "1699913600"}
    assert (len(signatures), len(ids), len(bodies)) == (3, 1, 1)
