"""A deep tree far larger than any program may hold: exported, stored and imported in flat memory.

`make test` distributes 40 MiB; TEST_LARGE_MIB=1024 is what `make chaos` does.
"""

import json
import os
import time
from pathlib import Path

import psycopg
import pytest

from packhorse.blobs.open import open_blobs
from tests.harness.postgres import Databases
from tests.harness.site import Site, site
from tests.harness.waiting import eventually

MIB = int(os.environ.get("TEST_LARGE_MIB", "40"))
NODE_BYTES = 20_000
MOST_MIB = min(300, 126 + MIB)
"""A program has less than 140 MiB with a tree of any size, and MIB more if it held one once."""
PATIENCE_S = 60 + 3 * MIB

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200)]

# Hex digits of digests: about half is left by compression, nothing repeats.
_GROW = """
    INSERT INTO content.node (path, type, properties, binaries)
    SELECT '/content/large/' || number / 500 || '/' || number, 'page', jsonb_build_object(
        'text', (SELECT string_agg(md5(format('%%s %%s', number, part)), '')
            FROM generate_series(1, 620) AS parts (part))
    ), '{}'::jsonb
    FROM generate_series(0, %(count)s - 1) AS numbers (number)
    UNION ALL
    SELECT '/content/large/' || number, 'folder', '{}'::jsonb, '{}'::jsonb
    FROM generate_series(0, (%(count)s - 1) / 500) AS folders (number)
    UNION ALL VALUES ('/content', 'folder', '{}'::jsonb, '{}'::jsonb),
        ('/content/large', 'folder', '{}', '{}')
"""


def _grow(url: str) -> int:
    count = MIB * 1024 * 1024 // NODE_BYTES
    with psycopg.connect(url) as connection:
        connection.execute(_GROW, {"count": count})
    return count


def _peak_mib(pid: int) -> float:
    """Return the most memory the process has ever held."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def _distribute(built: Site) -> float:
    """Distribute the tree deep; return the seconds until the subscriber has it."""
    begun = time.monotonic()
    answer = built.http.post(
        f"{built.publisher.url}/distribute",
        json={"action": "ADD", "deep_paths": ["/content/large"]},
        timeout=PATIENCE_S,
    )
    assert answer.status_code == 202, answer.text
    path = f"/distributions/{answer.json()['package_id']}"

    def everywhere() -> bool:
        states = [one["state"] for one in built.get(path)["subscribers"]]
        return states == ["IMPORTED"]

    eventually(everywhere, timeout=PATIENCE_S, interval=0.5, what="the tree at the subscriber")
    return time.monotonic() - begun


def test_r7_a_large_tree_reaches_a_subscriber_in_flat_memory(databases: Databases) -> None:
    journal_url = databases.new("journal")
    with site(databases, journal_url) as built:
        subscriber = built.subscriber("sub1")
        built.start()
        nodes = _grow(built.author_url)
        seconds = _distribute(built)
        blobs = open_blobs(str(built.programs.folder / "blobs"))
        stored = [blob.length for blob in blobs.list("packages/")]
        peaks = {program.name: _peak_mib(program.pid) for program in (built.publisher, subscriber)}
        figures = {"nodes": nodes, "mib": MIB, "stored": stored, "s": seconds, "peak_mib": peaks}
        print(json.dumps(figures))
        assert len(stored) == 1
        assert stored[0] > MIB * 1024 * 1024 / 4
        assert max(peaks.values()) < MOST_MIB, peaks
        assert len(set(built.hashes("/content/large").values())) == 1
