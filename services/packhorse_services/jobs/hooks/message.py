"""A message as the Standard Webhooks describe it: id, time, body, and a signature for each key."""

import base64
import hashlib
import hmac
from collections.abc import Iterable

import orjson

from packhorse.jobs.job import Job

_VERSION = "v1"
_OF_THE_WATCH = {"change", "watch"}


def id_of(job: Job) -> str:
    """Return the message's id: the same for each attempt, another one for any other job.

    Several subscribers, and copies of one, may tell the same receiver, so the number of the job is
    not enough.
    """
    subscriber = job.properties.get("subscriber", "")
    told = f"{subscriber}\n{job.topic}\n{job.number}\n{job.created_at.timestamp()}"
    return f"msg_{hashlib.sha256(told.encode()).hexdigest()[:32]}"


def body_of(job: Job) -> bytes:
    """Return the body: `type`, `timestamp` and `data`, the same bytes for each attempt."""
    said = {name: one for name, one in job.properties.items() if name not in _OF_THE_WATCH}
    message = {
        "type": f"content.{job.properties['change']}",
        "timestamp": job.created_at.isoformat(),
        "data": said,
    }
    return orjson.dumps(message, option=orjson.OPT_SORT_KEYS)


def headers_of(message_id: str, seconds: int, body: bytes, keys: Iterable[bytes]) -> dict[str, str]:
    """Return the headers of a message that is sent at a time, in seconds since 1970."""
    signed = f"{message_id}.{seconds}.".encode() + body
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"{_VERSION},{_signature(key, signed)}" for key in keys),
    }


def _signature(key: bytes, signed: bytes) -> str:
    return base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
