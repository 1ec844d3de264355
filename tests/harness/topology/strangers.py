"""Somebody who sends a cluster whatever a test wants, signed as a test wants."""

import json
import time
from typing import Any

import httpx
from prometheus_client import REGISTRY

from packhorse.topology.announcements import Announcement, encode
from packhorse.topology.connector_keys import KeyId, SharedKeys
from packhorse.topology.rejection import RejectionReason
from packhorse.topology.signing import SignedRequest
from tests.harness.topology.clusters import SECRET, Cluster, cluster
from tests.harness.topology.forgeries import Sent, sent

KEYS = SharedKeys([SECRET])


class Stranger:
    """An instance of a cluster that has no process; it has the shared key."""

    def __init__(self, peer: Cluster, name: str = "far") -> None:
        self.peer, self.name = peer, name
        self.instance = f"{name}-1"
        self._client = httpx.Client(timeout=120)

    def announcement(self) -> Announcement:
        return Announcement(self.instance, cluster(self.name), backoff_interval_s=0.2)

    def document(self, **changes: Any) -> dict[str, Any]:
        """The announcement as JSON, changed."""
        return {**json.loads(encode(self.announcement())), **changes}

    def signed(
        self,
        body: bytes | None = None,
        *,
        method: str = "PUT",
        instance: str = "",
        key: KeyId | None = None,
        now: float | None = None,
        **headers: str,
    ) -> Sent:
        """A request that is right, but for what the test asks for."""
        if body is None:
            body = b"" if method == "DELETE" else encode(self.announcement())
        plain = self.request(method, instance, **headers)
        return sent(plain, body, time.time() if now is None else now, KEYS, key)

    def request(self, method: str = "PUT", instance: str = "", **headers: str) -> SignedRequest:
        """What there is to sign, without a body."""
        return SignedRequest(
            method,
            f"127.0.0.1:{self.peer.port}",
            f"/topology/connectors/{instance or self.instance}",
            {"content-type": "application/json"} | _dashed(headers),
        )

    def send(self, one: Sent) -> httpx.Response:
        """Send it, whatever it says of host and path."""
        headers = [("host", one.authority), *one.headers]
        return self._client.request(
            one.method, self.peer.url + one.target, headers=headers, content=one.body
        )

    def send_json(self, document: Any) -> httpx.Response:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return self.send(self.signed(body))

    def close(self) -> None:
        self._client.close()


def rejected(reason: RejectionReason) -> float:
    """What the counter says."""
    labels = {"reason": reason.value}
    return REGISTRY.get_sample_value("packhorse_topology_rejected_total", labels) or 0.0


def _dashed(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
