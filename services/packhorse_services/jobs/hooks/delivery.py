"""Delivers the jobs of a hook: a consumer that ends a job once the receiver has said 2xx."""

import asyncio
import ssl
from collections.abc import Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime

import httpx

from packhorse.clock import Clock, SystemClock
from packhorse.jobs.consumer import Cancel, Outcome, Result, Retry
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.job import Job
from packhorse_services.jobs.hooks.hook import Hook, topic_of
from packhorse_services.jobs.hooks.message import body_of, headers_of, id_of

_GONE = 410
_LONGEST_WAIT = timedelta(hours=1)


class Delivery:
    """Tells one receiver; the jobs' queue tries again what failed."""

    def __init__(self, hook: Hook, tls: ssl.SSLContext, clock: Clock) -> None:
        self._hook, self._tls, self._clock = hook, tls, clock

    def __call__(self, job: Job) -> Result:
        """Deliver. Raises `Retry`, and `Cancel` where the receiver is gone for good."""
        body = body_of(job)
        seconds = self._clock.wall_ms() // 1000
        headers = headers_of(id_of(job), seconds, body, self._hook.keys)
        try:
            answer = asyncio.run(self._post(headers, body))
        except TimeoutError:
            raise Retry(f"no answer within {self._hook.timeout_s:g} s") from None
        except (httpx.HTTPError, OSError, ssl.SSLError) as error:
            raise Retry(f"{type(error).__name__}: {error}") from None
        return _judged(answer)

    async def _post(self, headers: Mapping[str, str], body: bytes) -> httpx.Response:
        """Return the answer without its body, which is not read."""
        url, seconds = self._hook.url.get_secret_value(), self._hook.timeout_s
        async with (
            asyncio.timeout(seconds),  # the client's own is for each step, of which there are many
            httpx.AsyncClient(
                verify=self._tls, timeout=seconds, follow_redirects=False, trust_env=False
            ) as client,
            client.stream("POST", url, headers=headers, content=body) as answer,
        ):
            return answer


def _judged(answer: httpx.Response) -> Result:
    said = f"the receiver answered {answer.status_code}"
    if answer.is_success:
        return Result(Outcome.OK, said)
    if answer.status_code == _GONE:
        raise Cancel(f"{said}: it is gone for good")
    if answer.has_redirect_location:
        raise Retry(f"{said}; redirects are not followed")
    # Each answer counts as a retry, and small waits would use them up in minutes.
    raise Retry(said, after=wait_of(answer.headers), lengthens=True)


def wait_of(headers: Mapping[str, str]) -> timedelta | None:
    """Return how long an answer asks to wait, an hour at most; None where it does not ask.

    A moment counts from the answer's own date, whatever its clock says.
    """
    text = headers.get("retry-after", "")
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return min(timedelta(seconds=int(text)), _LONGEST_WAIT)
    try:
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("date", ""))
    except (ValueError, TypeError, OverflowError):
        return None
    return max(timedelta(0), min(wait, _LONGEST_WAIT))


def add_deliveries(consumers: Consumers, hooks: Mapping[str, Hook]) -> None:
    """Let the jobs of the hooks be done here."""
    tls = ssl.create_default_context()
    for name, hook in hooks.items():
        consumers.add(topic_of(name), Delivery(hook, tls, SystemClock()))
