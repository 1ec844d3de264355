"""Staging with programs: a golden subscriber first, then the one that waits for it (ADR 0014)."""

from collections.abc import Iterator, Sequence

import pytest

from tests.harness.postgres import Databases
from tests.harness.site import Document, Site, site
from tests.harness.waiting import eventually

QUICK = {"backoff_first_s": 0.1, "backoff_longest_s": 0.2, "announce_s": 1, "lease_s": 2}


@pytest.fixture
def staged(databases: Databases, journal_url: str) -> Iterator[Site]:
    """A site with one subscriber that waits for `golden`, which is not there yet."""
    with site(databases, journal_url) as built:
        built.subscriber("late", wait_for="golden", **QUICK)
        built.start()
        yield built


def waits(staged: Site, sent: Sequence[Document]) -> Document:
    """Return the queue of `late` once it waits with these; what it announced before is older."""
    wanted = [one["offset"] for one in sent]

    def look() -> Document | None:
        queue = staged.queue("late")
        assert [entry["offset"] for entry in queue["entries"]] == wanted
        return queue if queue["state"] == "WAITING_FOR_SUBSCRIBER" else None

    found = eventually(look, what="late waits")
    assert found is not None
    return found


def states(staged: Site, accepted: Document) -> dict[str, str]:
    became = staged.get(f"/distributions/{accepted['id']}")["subscribers"]
    return {one["subscriber"]: one["state"] for one in became}


def test_golden_first_then_the_one_that_waits(staged: Site) -> None:
    sent = []
    for number in range(5):
        staged.put(f"/staged/{number}")
        sent.append(staged.distribute(f"/staged/{number}"))
    queue = waits(staged, sent)
    assert queue["head"]["attempts"] == 0
    assert "golden" in queue["head"]["last_error"]
    assert staged.at("late", "/staged/0") is None

    staged.join("golden", editable=True, **QUICK)
    became = staged.everywhere(sent[-1])
    assert {one["state"] for one in became["subscribers"]} == {"IMPORTED"}
    assert len(set(staged.hashes("/staged").values())) == 1

    staged.subscribers["golden"].kill()
    staged.put("/staged/more")
    more = staged.distribute("/staged/more")
    waits(staged, [more])
    staged.subscribers["late"].kill()
    staged.start()
    staged.everywhere(more)
    assert len(set(staged.hashes("/staged").values())) == 1


def test_what_golden_gives_up_is_skipped_and_says_so(staged: Site) -> None:
    staged.join("golden", editable=True, max_retries=1, import_roots="/open", **QUICK)
    for path in ("/closed", "/open"):
        staged.put(path)
    refused = staged.distribute("/closed")
    behind = staged.distribute("/open")
    staged.everywhere(behind)
    staged.everywhere(refused)
    assert states(staged, refused) == {"golden": "REMOVED_FAILED", "late": "SKIPPED"}
    assert states(staged, behind) == {"golden": "IMPORTED", "late": "IMPORTED"}
    assert staged.at("late", "/closed") is None
    assert staged.at("late", "/open") is not None
