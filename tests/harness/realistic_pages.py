"""Pages for the benches that cost what real ones do: text, UUIDs, hashes, dates, numbers.

A page of 5 KB compresses to about 2 KB, as pages of a website do. Equal seeds give equal pages.
"""

import itertools
import json
import random
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from packhorse.content.node import Node

_SYLLABLES = (
    "al an ar be con de di en er for ge in ing is ka lo ma ne on or per re sta te ti un ver"
)
_EPOCH = datetime(2024, 1, 1, tzinfo=UTC)


def _vocabulary(words: int) -> list[str]:
    source, syllables = random.Random(7), _SYLLABLES.split()
    return ["".join(source.choices(syllables, k=source.randint(1, 4))) for _ in range(words)]


_WORDS = _vocabulary(4_000)
_WEIGHTS = list(itertools.accumulate(1 / rank for rank in range(1, len(_WORDS) + 1)))
"""Cumulative, by Zipf's law, as in texts."""


def page(path: str, source: random.Random, size: int) -> Node:
    """Return a page whose properties take about `size` bytes as the database writes them."""
    return Node(path, "page", json.dumps(properties(source, size)))


def properties(source: random.Random, size: int) -> dict[str, Any]:
    """Return what a page of about `size` bytes holds: a head, and components with texts."""
    changed = _EPOCH + timedelta(seconds=source.randrange(60_000_000))
    found: dict[str, Any] = {
        "id": _uuid(source),
        "title": _text(source, 5),
        "lastModified": changed.isoformat(),
        "price": round(source.random() * 500, 2),
        "template": f"/conf/site/templates/{source.choice(_WORDS)}",
    }
    components: list[dict[str, Any]] = []
    written = 220
    while written < size:
        words = min(60, max(1, (size - written - 130) // 6))
        component = {"id": _uuid(source), "type": "text", "order": len(components)}
        components.append({**component, "text": _text(source, words)})
        written += 110 + len(components[-1]["text"])
    return {**found, "components": components}


def _uuid(source: random.Random) -> str:
    return str(uuid.UUID(int=source.getrandbits(128), version=4))


def _text(source: random.Random, words: int) -> str:
    return " ".join(source.choices(_WORDS, cum_weights=_WEIGHTS, k=words)).capitalize() + "."
