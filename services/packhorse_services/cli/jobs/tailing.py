"""`packhorse job tail`: the log and the progress of one job, or what becomes of all jobs."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from packhorse.client.blocking import Client
from packhorse.client.calls.streams import job_events
from packhorse.client.errors import NoAnswer, Refused
from packhorse.client.following import StreamEvent
from packhorse.runtime.plain_text import one_line
from packhorse_services.cli.client import output
from packhorse_services.cli.client.failures import CommandFailed, Exit
from packhorse_services.cli.client.views import Format
from packhorse_services.cli.events import TimeIsUp, ending_after, event_id, follow, forms
from packhorse_services.cli.jobs.views import progress_text

TOPICS = "packhorse/job/*"
"""The events that report what becomes of jobs."""

_POLL_S = 0.5
_LONGEST_PAUSE_S = 10.0
_OPEN = ("QUEUED", "ACTIVE")


def tail(
    service: Client,
    number: int,
    *,
    seconds: float | None = None,
    form: Format = Format.TABLE,
    poll_s: float = _POLL_S,
) -> None:
    """Show a job's log as it grows until the job has ended, or the seconds are over.

    Raises `CommandFailed` when the job ends in another state than SUCCEEDED.
    """
    with suppress(TimeIsUp), ending_after(seconds):
        _follow_job(_seen(service, number, poll_s), number, form)


def wait(service: Client, number: int, timeout: float) -> None:
    """Return when a job has SUCCEEDED, and print its log until then, on stderr.

    Raises `CommandFailed`: with `TIMEOUT` when that takes too long, `FAILED` for another end.
    """
    try:
        with ending_after(timeout):
            _follow_job(_seen(service, number), number, Format.TABLE, output.report)
    except TimeIsUp:
        raise CommandFailed(
            f"not done after {timeout:g} s; look again with packhorse job tail {number}",
            Exit.TIMEOUT,
        ) from None


def _follow_job(
    states: Iterable[Mapping[str, Any]],
    number: int,
    form: Format,
    show: Callable[[str], None] = output.line,
) -> None:
    before: Mapping[str, Any] = {}
    for found in states:
        if found == before:
            continue
        if form is Format.JSON:
            output.line(json.dumps(found))
        elif form is Format.NAME:
            _report_state(before, found, output.line)
        else:
            for line in new_lines(before.get("log", ()), found["log"]):
                show(one_line(line))
            _report_state(before, found, output.report)
        before = found
    if before["state"] != "SUCCEEDED":
        said = f": {one_line(before['result_message'])}" if before["result_message"] else ""
        raise CommandFailed(f"job {number} is {before['state']}{said}")


def _seen(service: Client, number: int, poll_s: float = _POLL_S) -> Iterator[Mapping[str, Any]]:
    """Yield a job again and again until it has ended; a lost connection is waited for."""
    connected, wait_s = False, poll_s
    while True:
        try:
            found = service.job(number)
        except (NoAnswer, Refused) as error:
            if not connected or (isinstance(error, Refused) and error.status < 500):
                raise
            output.report(f"{error}; trying again in {wait_s:g} s")
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_PAUSE_S)
            continue
        connected, wait_s = True, poll_s
        yield found
        if found["state"] not in _OPEN:
            return
        time.sleep(poll_s)


def new_lines(before: Sequence[str], after: Sequence[str]) -> Sequence[str]:
    """Return the lines that a log has got: of both, only the newest lines are known."""
    for shared in range(min(len(before), len(after)), 0, -1):
        if list(before[-shared:]) == list(after[:shared]):
            return after[shared:]
    return after


def _report_state(
    before: Mapping[str, Any], found: Mapping[str, Any], report: Callable[[str], None]
) -> None:
    line = _state(found)
    if not before or line != _state(before):
        report(line)


def _state(job: Mapping[str, Any]) -> str:
    where = f" on {job['instance']}" if job["state"] == "ACTIVE" else ""
    again = f", attempt {job['attempts']}" if job["attempts"] > 1 else ""
    reported = progress_text(job["progress"])
    return one_line(f"{job['state']}{where}{again}{f', {reported}' if reported else ''}")


def tail_all(service: Client, after: str | None, seconds: float | None, form: Format) -> None:
    """Follow what becomes of all jobs, over lost connections too."""
    behind = event_id(after)
    with suppress(TimeIsUp), ending_after(seconds):
        for event in follow(service, job_events(TOPICS, after=behind)):
            output.line(_SHOWN[form](event))


def _as_text(event: StreamEvent) -> str:
    data = event.data
    reported = _said(data) if event.kind != "gap" else "events are lost; it goes on from now"
    return f"{data.get('created_at') or '-':<27}  {reported}"


def _said(data: Mapping[str, Any]) -> str:
    given = data["properties"]
    kind = str(data["topic"]).rpartition("/")[2]
    named = f"{given['topic']} {given['id']}" if given.get("id") else given["topic"]
    where = f" on {given['instance']}" if given.get("instance") else ""
    reason = f": {given['reason']}" if given.get("reason") else ""
    return f"{kind:<9}  {given['number']}  {named}  {given['state']}{where}{reason}"


def _as_name(event: StreamEvent) -> str:
    try:
        return str(int(event.data["properties"]["number"]))
    except (ValueError, KeyError, TypeError):
        return event.kind


_SHOWN = forms(_as_text, _as_name)
