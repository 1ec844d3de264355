"""What a peer's request is checked for before anything of it is believed."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import httpx
from starlette.types import Scope

from packhorse.topology import nonces, signing
from packhorse.topology.announcements import Announcement, InvalidAnnouncement, decode
from packhorse.topology.connector_keys import KeyId, SharedKeys
from packhorse.topology.patience import PatientPool
from packhorse.topology.rejection import Rejected, RejectionReason
from packhorse.topology.sealing import place_of
from packhorse.topology.signing import Signed, SignedRequest
from packhorse_services.topology.connectors.coding import Seal, uncoded
from packhorse_services.topology.connectors.options import ConnectorConfiguration, base_url

_INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as its signature is computed from it."""

    request: SignedRequest
    instance_id: str
    """The one in the URL: whose connector it says to be."""

    def signed(self, settings: ConnectorConfiguration) -> Signed | None:
        """Return the signature, which is right, before there is a body; None without keys.

        Raises `Rejected`. Whether it is its time, and its first, is left to `take`.
        """
        if settings.connector_keys is None:
            return None
        if signing.parsed(self.request).key.instance != self.instance_id:
            raise Rejected(
                RejectionReason.FOREIGN, "the key id names another instance than the URL"
            )
        return signing.verify_head(self.request, settings.connector_keys)

    def take(
        self,
        settings: ConnectorConfiguration,
        signed: Signed | None,
        body: bytes,
        pool: PatientPool,
    ) -> None:
        """Take the request with its body, once and never again. Raises `Rejected`."""
        if settings.connector_keys is None or signed is None:
            return
        signing.check_digest(self.request, body)
        with pool.connection() as connection:
            nonces.take(connection, signed, settings.connector_keys)

    def announcement(
        self, settings: ConnectorConfiguration, body: bytes, signed: Signed | None
    ) -> Announcement:
        """Return what it announces. Raises `Rejected`, `TooLarge` or `InvalidAnnouncement`."""
        sealing = self._seal(settings, signed)
        announcement = decode(uncoded(self.request.headers, body, sealing))
        if announcement.owner != self.instance_id:
            raise InvalidAnnouncement("the owner is another instance than the one in the URL")
        return announcement

    def answer_seal(
        self, settings: ConnectorConfiguration, key: KeyId, signed: Signed | None
    ) -> Seal | None:
        """Return how to seal the answer."""
        if signed is None or settings.connector_keys is None or not settings.connector_encryption:
            return None
        return self._sealed_with(settings.connector_keys, key, signed, "answer", signed.nonce)

    def _seal(self, settings: ConnectorConfiguration, signed: Signed | None) -> Seal | None:
        if signed is None or settings.connector_keys is None or not settings.connector_encryption:
            return None
        return self._sealed_with(settings.connector_keys, signed.key, signed, "PUT", "")

    def _sealed_with(
        self, keys: SharedKeys, key: KeyId, signed: Signed, what: str, nonce: str
    ) -> Seal:
        place = place_of(what, self.request.authority, self.request.target, str(key), nonce)
        return Seal(keys.sealing_key(key, signed.secret), place)


def incoming(scope: Scope, instance_id: str, settings: ConnectorConfiguration) -> Incoming:
    """Return a request as it was signed. Raises `Rejected` without one clear host, or an id."""
    if not _INSTANCE.fullmatch(instance_id):
        raise Rejected(RejectionReason.MALFORMED, "the URL ends with the id of an instance")
    headers = [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
    ]
    if settings.connector_public_url:
        base = base_url(settings.connector_public_url)
        authority, target = base.netloc.decode("ascii"), _public_target(base, instance_id)
    else:
        authority, target = _host(headers), scope["raw_path"].decode("latin-1")
    found = SignedRequest(scope["method"], authority.lower(), target, signing.fields(headers))
    return Incoming(found, instance_id)


def _public_target(base: httpx.URL, instance_id: str) -> str:
    return base.copy_with(path=f"{base.path}/{instance_id}").raw_path.decode("ascii")


def _host(headers: Iterable[tuple[str, str]]) -> str:
    hosts = [value for name, value in headers if name.lower() == "host"]
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
        raise Rejected(RejectionReason.MALFORMED, "send the header Host, once")
    return hosts[0]
