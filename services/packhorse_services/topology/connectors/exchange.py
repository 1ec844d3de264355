"""One exchange with a peer over HTTP: signed, sealed, bounded, and checked."""

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from packhorse.errors import Transient
from packhorse.topology import signing
from packhorse.topology.announcements import Announcement, InvalidAnnouncement, decode
from packhorse.topology.connector_keys import KeyId
from packhorse.topology.rejection import Rejected, RejectionReason
from packhorse.topology.sealing import place_of
from packhorse_services.topology.connectors.coding import (
    MAX_WIRE_BYTES,
    Coded,
    Seal,
    TooLarge,
    coded,
    uncoded,
)
from packhorse_services.topology.connectors.options import ConnectorConfiguration

_STOP_TIMEOUT_S = 2.0


class ExchangeFailed(Transient):
    """The peer can't be reached, refuses, or answers what can't be believed."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Exchange:
    """Talks to one URL; keeps its connection. Used by one thread. Times are the database's."""

    def __init__(self, base: httpx.URL, instance_id: str, settings: ConnectorConfiguration) -> None:
        self._url = base.copy_with(path=f"{base.path}/{instance_id}")
        self._instance, self._settings = instance_id, settings
        self._client = httpx.Client(
            timeout=httpx.Timeout(
                settings.connector_read_timeout_s, connect=settings.connector_connect_timeout_s
            ),
            verify=ssl.create_default_context(),
            follow_redirects=False,
            trust_env=False,
        )

    def put(self, announcement: Announcement, now: float) -> Announcement:
        """Send an announcement, and return the peer's. Raises `ExchangeFailed`."""
        try:
            key = self._key(now)
            sealing = None if key is None else self._seal(key, "PUT", "", 0)
            body = coded(announcement, gzip=self._settings.connector_gzip, sealing=sealing)
            return self._send("PUT", body, key, now)
        except (Rejected, InvalidAnnouncement, TooLarge) as error:
            raise ExchangeFailed(str(error)) from error

    def delete(self, now: float) -> None:
        """Announce to the peer that nothing more will come. Raises `ExchangeFailed`."""
        request = self._signed("DELETE", Coded({}, b""), self._key(now), now)
        try:
            with self._answered(request, b"", _STOP_TIMEOUT_S) as answer:
                if answer.status >= 300:
                    raise ExchangeFailed(_refusal(answer))
        except (Rejected, TooLarge) as error:
            raise ExchangeFailed(str(error)) from error

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def _send(self, method: str, body: Coded, key: KeyId | None, now: float) -> Announcement:
        request = self._signed(method, body, key, now)
        with self._answered(request, body.body, None) as answer:
            if answer.status != 200:
                raise ExchangeFailed(_refusal(answer))
            sealing, peer = self._checked(answer, request, now)
        reported = decode(uncoded(answer.headers, answer.body, sealing))
        if peer is not None and reported.owner != peer.instance:
            raise Rejected(RejectionReason.FOREIGN, "the answer is signed by another instance")
        return reported

    def _checked(
        self, answer: _Answer, request: signing.SignedRequest, now: float
    ) -> tuple[Seal | None, KeyId | None]:
        keys = self._settings.connector_keys
        if keys is None:
            return None, None
        response = signing.Response(answer.status, answer.headers, request)
        signed = signing.verify(response, answer.body, keys)
        # An answer is bound to its request, which was made just now: it needs no nonce.
        signing.check_times(signed, keys, now)
        nonce = signing.parsed(request).nonce
        return self._seal(signed.key, "answer", nonce, signed.secret), signed.key

    def _key(self, now: float) -> KeyId | None:
        keys = self._settings.connector_keys
        return None if keys is None else keys.key_id(now, self._instance)

    def _seal(self, key: KeyId, what: str, nonce: str, secret: int) -> Seal | None:
        keys = self._settings.connector_keys
        if keys is None or not self._settings.connector_encryption:
            return None
        place = place_of(what, self._authority, self._target, str(key), nonce)
        return Seal(keys.sealing_key(key, secret), place)

    def _signed(
        self, method: str, body: Coded, key: KeyId | None, now: float
    ) -> signing.SignedRequest:
        request = signing.SignedRequest(method, self._authority, self._target, body.headers)
        keys = self._settings.connector_keys
        if keys is None or key is None:
            return request
        headers = signing.sign(request, body.body, keys, key, now)
        return signing.SignedRequest(method, self._authority, self._target, headers)

    @contextmanager
    def _answered(
        self, request: signing.SignedRequest, body: bytes, timeout_s: float | None
    ) -> Iterator[_Answer]:
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else httpx.Timeout(timeout_s)
        headers = {"accept-encoding": "gzip", **request.headers}
        try:
            with self._client.stream(
                request.method, self._url, headers=headers, content=body, timeout=timeout
            ) as response:
                fields = signing.fields(response.headers.multi_items())
                body_of = _bounded(response, self._settings.connector_read_timeout_s)
                yield _Answer(response.status_code, fields, body_of)
        except httpx.HTTPError as error:
            raise ExchangeFailed(str(error) or type(error).__name__) from error
        finally:
            self._client.cookies.clear()  # a peer could let them grow

    @property
    def _authority(self) -> str:
        return self._url.netloc.decode("ascii").lower()

    @property
    def _target(self) -> str:
        return self._url.raw_path.decode("ascii")


def _bounded(response: httpx.Response, timeout_s: float) -> bytes:
    body = bytearray()
    until = time.monotonic() + timeout_s
    for part in response.iter_raw():
        body += part
        if time.monotonic() > until:  # each part came in time, but there are too many
            raise ExchangeFailed(f"the peer's answer takes longer than {timeout_s:g} s")
        if len(body) > MAX_WIRE_BYTES:
            raise TooLarge(f"the peer's answer has more than {MAX_WIRE_BYTES} bytes")
    return bytes(body)


def _refusal(answer: _Answer) -> str:
    """Return what a refusal says: it is not signed, so it is shown and decides nothing."""
    said = answer.body[:1_000].decode("utf-8", "replace")
    printable = "".join(character if character.isprintable() else " " for character in said)
    return f"the peer answers {answer.status}: {printable}"
