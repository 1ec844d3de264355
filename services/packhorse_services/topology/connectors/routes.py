"""Where other clusters' connectors come to: PUT to announce, DELETE to disconnect."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fastapi import APIRouter, Depends, Request, Response

from packhorse.errors import PackhorseError
from packhorse.runtime.audit import unaudited
from packhorse.runtime.metrics import TOPOLOGY_REJECTED
from packhorse.runtime.problems import Problem, ProblemKind
from packhorse.runtime.request_body import allow_body
from packhorse.topology import signing
from packhorse.topology.announcement_store import TooManyPeers
from packhorse.topology.announcements import Announcement, InvalidAnnouncement
from packhorse.topology.rejection import Rejected, RejectionReason
from packhorse.topology.signing import Signed
from packhorse_services.topology.connectors.allow_list import AllowList
from packhorse_services.topology.connectors.coding import MAX_WIRE_BYTES, Coded, TooLarge, coded
from packhorse_services.topology.connectors.knowledge import ClusterKnowledge, Knowledge
from packhorse_services.topology.connectors.options import DEFAULT_PATH
from packhorse_services.topology.connectors.reading import Incoming, incoming
from packhorse_services.topology.connectors.reception import ClaimsOurs, is_loop, kept_of

_ASKING = 4
UNSIGNED = ProblemKind(401, "unsigned", "The request is not signed as it must be")
_CHALLENGE = {"WWW-Authenticate": 'Signature realm="packhorse"'}
_STATUSES: dict[type[PackhorseError], int] = {
    InvalidAnnouncement: 422,
    ClaimsOurs: 409,
    TooManyPeers: 409,
    TooLarge: 413,
}


def connector_routes(knowledge: Knowledge, allow_list: AllowList) -> APIRouter:
    """Return the routes; they ask for no token, but for an address and a signature.

    They are for packhorse processes alone and so not in the OpenAPI document.
    """
    gate = _Gate(knowledge, allow_list)
    router = APIRouter(prefix=DEFAULT_PATH, include_in_schema=False)
    periodic = [Depends(unaudited), Depends(allow_body(MAX_WIRE_BYTES))]

    @router.put("/{instance_id}", dependencies=periodic)
    async def announce(request: Request, instance_id: str) -> Response:
        return await gate.passed(request, instance_id, gate.announce)

    @router.delete("/{instance_id}", dependencies=[Depends(allow_body(0))])
    async def disconnect(request: Request, instance_id: str) -> Response:
        return await gate.passed(request, instance_id, gate.disconnect)

    return router


@dataclass(frozen=True, slots=True)
class _Caller:
    """Who asks: the signature is right, and its time and its nonce are not looked at yet."""

    request: Incoming
    signed: Signed | None
    address: str
    takes_gzip: bool


class _Gate:
    def __init__(self, knowledge: Knowledge, allow_list: AllowList) -> None:
        self._knowledge, self._allow_list = knowledge, allow_list
        self._settings = knowledge.settings
        # Threads of their own, so that a name service that hangs takes none from other routes.
        self._asking = ThreadPoolExecutor(_ASKING, "allow-list")

    async def passed(
        self,
        request: Request,
        instance_id: str,
        action: Callable[[_Caller, bytes], Response],
    ) -> Response:
        """Do the action for whom the allow list has; everything else is a problem, and counted."""
        peer = request.client.host if request.client else ""
        if not await self._is_allowed(peer):
            TOPOLOGY_REJECTED.labels(RejectionReason.UNTRUSTED).inc()
            raise Problem(404)
        try:
            if request.scope["query_string"]:
                raise Rejected(RejectionReason.MALFORMED, "connectors send no query")
            found = incoming(request.scope, instance_id, self._settings)
            caller = _Caller(found, found.signed(self._settings), peer, _takes_gzip(request))
            body = await request.body()
            return await asyncio.to_thread(action, caller, body)
        except (Rejected, InvalidAnnouncement, ClaimsOurs, TooManyPeers, TooLarge) as error:
            raise _problem(error) from error

    async def _is_allowed(self, peer: str) -> bool:
        """Who is listed by address never waits behind strangers whose names are looked up."""
        if self._allow_list.has_address(peer):
            return True
        requested = asyncio.get_running_loop().run_in_executor
        return await requested(self._asking, self._allow_list.allows, peer)

    def announce(self, caller: _Caller, body: bytes) -> Response:
        """Store what the peer announces, and answer with what is known here."""
        caller.request.take(self._settings, caller.signed, body, self._knowledge.pool)
        announcement = caller.request.announcement(self._settings, body, caller.signed)
        known = self._knowledge.look()
        if known is None:
            raise Problem(503, detail="this cluster has no view of itself yet; try again")
        loop = is_loop(announcement, known.own)
        if not loop:
            kept = kept_of(announcement, known.own)
            self._knowledge.hear(
                kept, holder="", address=caller.address, backoff_s=announcement.backoff_interval_s
            )
        answer = known.announcement(announcement.local_cluster.id, loop=loop)
        return self._answer(200, answer, known, caller)

    def disconnect(self, caller: _Caller, body: bytes) -> Response:
        """Forget what the peer has announced."""
        caller.request.take(self._settings, caller.signed, body, self._knowledge.pool)
        self._knowledge.forget(caller.request.instance_id, holder="")
        return self._answer(204, None, self._knowledge.look(), caller)

    def _answer(
        self,
        status: int,
        announcement: Announcement | None,
        known: ClusterKnowledge | None,
        caller: _Caller,
    ) -> Response:
        found, signed = caller.request, caller.signed
        keys = self._settings.connector_keys
        body = Coded({}, b"")
        key = None if keys is None or known is None else keys.key_id(known.now, known.instance_id)
        if announcement is not None:
            seal = None if key is None else found.answer_seal(self._settings, key, signed)
            body = coded(announcement, gzip=caller.takes_gzip, sealing=seal)
        headers = dict(body.headers)
        if keys is not None and key is not None and known is not None and signed is not None:
            answer = signing.Response(status, headers, found.request)
            headers = signing.sign(answer, body.body, keys, key, known.now, secret=signed.secret)
        return Response(body.body, status, headers)


def _takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def _problem(error: PackhorseError) -> Problem:
    if isinstance(error, Rejected):
        TOPOLOGY_REJECTED.labels(error.reason).inc()
        if error.reason is RejectionReason.ANNOUNCEMENT:
            return Problem(415, detail=str(error))
        return Problem(
            UNSIGNED.status, UNSIGNED.title, str(error), slug=UNSIGNED.slug, headers=_CHALLENGE
        )
    TOPOLOGY_REJECTED.labels(RejectionReason.ANNOUNCEMENT).inc()
    return Problem(_STATUSES[type(error)], detail=str(error))
