"""A client that does not wait for the time-out of a service which is stopped, or gone."""

import asyncio
from typing import Any

import httpx

from packhorse.client.awaiting import AsyncClient
from packhorse.client.errors import NoAnswer, NoAnswerInTime
from packhorse.client.exchange import Effect, Request, ServiceName
from packhorse.client.problems import Words

_SILENT_S, _LIVES_S = 1.0, 3.0
"""A service that has been silent is asked whether it lives; a busy one has time to say so."""

_WHY = "its process is stopped, or has too much to do"
WORDS = Words(address="its URL in this console's settings")


class ImpatientClient(AsyncClient):
    """Waits up to the time-out for a long answer of a service that lives, and 4 s for any other.

    Its errors name the kind of the service that does not answer.
    """

    async def _done(self, effect: Effect) -> Any:
        if not isinstance(effect, Request):
            return await super()._done(effect)
        answer = asyncio.create_task(super()._done(effect))
        try:
            await asyncio.wait({answer}, timeout=_SILENT_S)
            if answer.done() or await self._lives(effect.service) or answer.done():
                return await answer
            url = self._targets.of(effect.service).url
            raise NoAnswerInTime(f"{url} does not even say that it lives: {_WHY}")
        except NoAnswer as error:
            raise type(error)(f"the {effect.service} service: {error}", error.key) from error
        finally:
            answer.cancel()

    async def _lives(self, service: ServiceName) -> bool:
        """Return whether a service answers anything at all: its process may be stopped."""
        try:
            url = f"{self._targets.of(service).url}/livez"
            await self._http.get(url, timeout=_LIVES_S)
        except httpx.HTTPError:
            return False
        return True
