"""Readiness: asked by many, checked once a second, never hung by a check that hangs."""

import asyncio
import logging
import threading

import httpx
import pytest

from packhorse.runtime.readiness import NotReady, Readiness
from tests.harness.clock import ManualClock
from tests.unit.runtime.apps import LONG_S, call, sample_app


def _fail() -> None:
    raise ConnectionError("host=db password=secret")


def test_a_check_that_raises_makes_the_service_unready_and_is_named() -> None:
    app = sample_app(readiness={"database": _fail, "journal": lambda: None})
    answer = call(app, "GET", "/readyz?verbose")
    assert answer.status_code == 503
    assert answer.json()["checks"] == {"database": "ConnectionError", "journal": "ok"}
    assert "secret" not in answer.text
    assert "checks" not in call(app, "GET", "/readyz").json()
    assert call(app, "GET", "/livez").status_code == 200


def test_many_askers_cost_one_check_a_second() -> None:
    clock, calls = ManualClock(), []
    subject = Readiness({"x": lambda: calls.append(1)}, clock, timeout_s=LONG_S)

    async def ask_often() -> None:
        await asyncio.gather(*(subject.failures() for _ in range(20)))
        await subject.failures()
        assert len(calls) == 1
        clock.advance(1.0)
        await subject.failures()
        assert len(calls) == 2

    asyncio.run(ask_often())


def test_a_failure_that_ends_is_seen_soon() -> None:
    clock, away = ManualClock(), threading.Event()

    def check() -> None:
        if away.is_set():
            _fail()

    away.set()
    subject = Readiness({"x": check}, clock, timeout_s=LONG_S)

    async def ask() -> None:
        assert await subject.failures() == {"x": "ConnectionError"}
        away.clear()
        assert await subject.failures() == {"x": "ConnectionError"}
        clock.advance(0.1)
        assert await subject.failures() == {"x": ""}

    asyncio.run(ask())


def test_a_check_that_hangs_has_failed_and_is_not_started_again() -> None:
    release, started = threading.Event(), []

    def hang() -> None:
        started.append(1)
        release.wait()

    clock = ManualClock()
    subject = Readiness({"x": hang, "y": lambda: None}, clock, timeout_s=0.1)

    async def ask() -> None:
        for _ in range(3):
            while (found := await subject.failures())["y"]:  # its thread is late
                clock.advance(1.0)
            assert found == {"x": "no answer in time", "y": ""}
            clock.advance(1.0)
        assert len(started) == 1
        release.set()
        while (await subject.failures())["x"]:
            clock.advance(1.0)

    asyncio.run(asyncio.wait_for(ask(), LONG_S))


def test_an_answer_that_came_long_ago_says_nothing_of_now() -> None:
    clock, release, broken = ManualClock(), threading.Event(), threading.Event()

    def check() -> None:
        if broken.is_set():
            _fail()
        release.wait()

    subject = Readiness({"x": check}, clock, timeout_s=0.1)

    async def ask() -> None:
        assert await subject.failures() == {"x": "no answer in time"}
        late = subject._running["x"]
        release.set()
        await late
        broken.set()
        clock.advance(3600.0)
        while (found := await subject.failures()) == {"x": "no answer in time"}:
            clock.advance(1.0)
        assert found == {"x": "ConnectionError"}

    asyncio.run(asyncio.wait_for(ask(), LONG_S))


def test_a_check_that_recovers_makes_the_service_ready_again() -> None:
    clock, broken = ManualClock(), [True]

    def check() -> None:
        if broken:
            raise RuntimeError

    subject = Readiness({"x": check}, clock, timeout_s=LONG_S)

    async def ask() -> None:
        assert any((await subject.failures()).values())
        broken.clear()
        clock.advance(1.0)
        assert not any((await subject.failures()).values())

    asyncio.run(ask())


def test_a_process_that_is_stopping_is_not_ready() -> None:
    app = sample_app()
    app.state.stopping.set()
    answer: httpx.Response = call(app, "GET", "/readyz?verbose")
    assert answer.status_code == 503
    assert answer.json()["checks"] == {"serving": "stopping"}


def test_a_warning_is_shown_and_keeps_nobody_away() -> None:
    app = sample_app(readiness={"database": lambda: None}, warnings={"journal": _fail})
    answer = call(app, "GET", "/readyz?verbose")
    assert (answer.status_code, answer.json()) == (
        200,
        {
            "status": "ok",
            "checks": {"database": "ok"},
            "warnings": {"journal": "ConnectionError"},
        },
    )
    assert call(app, "GET", "/readyz").json() == {"status": "ok"}
    healthy = sample_app(readiness={}, warnings={"journal": lambda: None})
    assert "warnings" not in call(healthy, "GET", "/readyz?verbose").json()


def test_a_warning_that_hangs_delays_no_probe() -> None:
    release = threading.Event()
    subject = Readiness(
        {"x": lambda: None},
        warnings={"journal": lambda: release.wait() and None},
        timeout_s=LONG_S,
    )

    async def ask() -> None:
        assert await subject.failures() == {"x": ""}
        assert await subject.warnings() == {"journal": "no answer in time"}
        release.set()

    asyncio.run(ask())


def test_a_reason_that_anybody_may_be_shown_is_shown() -> None:
    def blocked() -> None:
        raise NotReady("BLOCKED")

    answer = call(sample_app(readiness={"content": blocked}), "GET", "/readyz?verbose")
    assert (answer.status_code, answer.json()["checks"]) == (503, {"content": "BLOCKED"})


async def ask_for(subject: Readiness, clock: ManualClock, seconds: int) -> None:
    for _ in range(seconds):
        await subject.failures()
        clock.advance(1.0)


def test_a_check_that_fails_is_logged_when_it_begins_and_when_it_works_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, away = ManualClock(), threading.Event()

    def check() -> None:
        if away.is_set():
            _fail()

    subject = Readiness({"database": check}, clock, timeout_s=LONG_S)

    async def ask() -> None:
        await ask_for(subject, clock, 1)
        away.set()
        await ask_for(subject, clock, 4)
        away.clear()
        await ask_for(subject, clock, 2)

    with caplog.at_level(logging.INFO):
        asyncio.run(ask())
    assert caplog.messages == [
        "not ready, for the check database fails: host=db password=secret",
        "the check database works again, after 4 s",
    ]


def test_a_warning_is_logged_as_what_leaves_the_process_ready(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    subject = Readiness({}, clock, warnings={"journal": _fail}, warning_s=LONG_S)
    asyncio.run(ask_for(subject, clock, 4))
    [told] = caplog.messages
    assert told.startswith("the check journal fails, and the process stays ready: ")


def test_a_check_that_hangs_is_logged_until_one_answers_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, answer = ManualClock(), threading.Event()
    started: list[int] = []

    def hang() -> None:
        started.append(1)
        answer.wait()

    subject = Readiness({"x": hang}, clock, timeout_s=0.1)

    def is_over() -> bool:
        return caplog.messages[-1].startswith("the check x works again, after ")

    async def ask() -> None:
        await ask_for(subject, clock, 2)
        answer.set()
        while (await subject.failures())["x"]:
            clock.advance(0.1)
        late_one_only = len(started) == 1  # else another one has answered in time meanwhile
        assert not (late_one_only and is_over()), "an answer that came late does not end it"
        while not is_over():
            clock.advance(1.0)
            await subject.failures()

    with caplog.at_level(logging.INFO):
        asyncio.run(asyncio.wait_for(ask(), LONG_S))
    assert caplog.messages[0] == "not ready, for the check x fails: no answer in time"


def test_a_warning_does_not_have_the_checks_run_more_often() -> None:
    clock, calls = ManualClock(), []
    subject = Readiness(
        {"x": lambda: calls.append(1)},
        clock,
        warnings={"journal": _fail},
        timeout_s=LONG_S,
        warning_s=LONG_S,
    )

    async def ask() -> None:
        for _ in range(9):
            await subject.failures()
            clock.advance(0.1)
        assert len(calls) == 1

    asyncio.run(ask())
