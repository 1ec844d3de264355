"""Record headers as one column: JSON whose strings stand for bytes, one character a byte."""

from collections.abc import Mapping

import orjson


def pack_headers(headers: Mapping[str, bytes]) -> bytes:
    """Return the headers as they are stored."""
    return orjson.dumps({name: value.decode("latin-1") for name, value in headers.items()})


def unpack_headers(packed: bytes) -> dict[str, bytes]:
    """Return the headers that `pack_headers` packed."""
    return {name: value.encode("latin-1") for name, value in orjson.loads(packed).items()}
