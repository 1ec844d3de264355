"""Subscribers that join, leave, fail and are copied, as the publisher's queues show them."""

from tests.harness.site import Site
from tests.harness.waiting import eventually

IMPATIENT = {"backoff_first_s": 0.1, "backoff_longest_s": 0.2, "announce_s": 1}


def test_r12_a_copied_database_goes_on_from_its_offset(running: Site) -> None:
    running.join("source")
    for number in range(5):
        running.put(f"/copied/{number}")
        running.distribute_everywhere(f"/copied/{number}")
    running.leave("source")
    database = running.database_urls["source"]
    running.put("/copied/5")
    missed = running.distribute("/copied/5")
    copy = running.databases.copy(database)
    running.join("copy", copy)
    became = running.everywhere(missed)
    assert "copy" in {one["subscriber"] for one in became["subscribers"]}
    assert len(set(running.hashes("/copied").values())) == 1
    running.leave("copy")


def test_r19_a_queue_that_is_not_editable_is_not_cleared(running: Site) -> None:
    answer = running.clear("sub2")
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert "not editable" in answer.json()["detail"]


def test_r18_after_max_retries_the_package_is_in_the_error_queue(running: Site) -> None:
    running.join("strict", max_retries=2, start="latest", import_roots="/strict/open", **IMPATIENT)
    running.put("/strict/closed")
    running.put("/strict/open")
    refused = running.distribute("/strict/closed")
    running.distribute_everywhere("/strict/open")
    errors = eventually(
        lambda: running.get("/queues/strict/errors")["entries"], what="the error queue"
    )
    assert [entry["offset"] for entry in errors] == [refused["offset"]]
    assert errors[0]["attempts"] == 3, "the first attempt and two retries (R10)"
    assert "/strict/closed" in errors[0]["reason"]
    assert errors[0]["paths"] == ["/strict/closed"]

    running.publisher.restart()
    again = eventually(lambda: running.get("/queues/strict/errors")["entries"])
    assert again == errors
    running.leave("strict")
