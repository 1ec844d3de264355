"""Record headers as one column: JSON whose strings stand for bytes, one character a byte."""

from collections.abc import Mapping
from typing import Any

import orjson


def pack_headers(headers: Mapping[str, bytes]) -> bytes:
    """Return the headers as they are stored."""
    return orjson.dumps({name: value.decode("latin-1") for name, value in headers.items()})


def unpack_headers(packed: bytes) -> dict[str, bytes]:
    """Return the headers that `pack_headers` packed."""
    headers: dict[str, Any] = orjson.loads(packed)
    for name, value in headers.items():  # in place: records without bodies cost little else
        headers[name] = value.encode("latin-1")
    return headers
