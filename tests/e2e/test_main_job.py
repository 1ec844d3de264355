"""The main job over HTTP, program by program: what the author distributes is what everybody has."""

import random
from collections.abc import Mapping
from typing import Any

from tests.harness.site import Site
from tests.harness.waiting import eventually


def _states(site: Site, became: Mapping[str, Any]) -> dict[str, str]:
    """Return what became of it at the site's subscribers; others that have left are listed too."""
    listed = {one["subscriber"]: one["state"] for one in became["subscribers"]}
    return {name: listed[name] for name in site.subscribers}


def _same_everywhere(site: Site, path: str) -> bool:
    return len(set(site.hashes(path).values())) == 1


def test_a_page_reaches_every_subscriber(running: Site) -> None:
    running.put("/one/page", properties={"title": "Größe ✓", "tags": ["a", None, 1.5]})
    became = running.distribute_everywhere("/one/page")
    assert _states(running, became) == {"sub1": "IMPORTED", "sub2": "IMPORTED"}
    for name in running.subscribers:
        node = running.at(name, "/one/page")
        assert node is not None
        assert node["properties"] == {"title": "Größe ✓", "tags": ["a", None, 1.5]}
    assert _same_everywhere(running, "/one")


def test_a_binary_goes_by_reference_and_is_served_by_subscribers(running: Site) -> None:
    content = random.Random(1).randbytes(2_000_000)
    running.put("/binary/picture", type="asset", binaries={"data": running.put_binary(content)})
    running.distribute_everywhere("/binary/picture")
    url = f"{running.subscribers['sub2'].url}/binaries/binary/picture"
    served = running.http.get(url, params={"name": "data"}, headers={"Range": "bytes=1000-1999"})
    assert (served.status_code, served.content) == (206, content[1000:2000])


def test_a_deep_distribution_replaces_the_subtree(running: Site) -> None:
    for name in ("kept", "gone", "gone/below"):
        running.put(f"/deep/{name}")
    running.distribute_everywhere(deep=["/deep"])
    running.remove("/deep/gone")
    running.put("/deep/new")
    running.distribute_everywhere(deep=["/deep"])
    assert running.at("sub1", "/deep/gone/below") is None
    assert running.at("sub1", "/deep/new") is not None
    assert _same_everywhere(running, "/deep")


def test_a_shallow_distribution_leaves_what_is_below(running: Site) -> None:
    for name in ("", "/below"):
        running.put(f"/shallow{name}", properties={"version": 1})
    running.distribute_everywhere(deep=["/shallow"])
    for name in ("", "/below"):
        running.put(f"/shallow{name}", properties={"version": 2})
    running.distribute_everywhere("/shallow")
    versions = [running.at("sub1", path) for path in ("/shallow", "/shallow/below")]
    assert [node and node["properties"]["version"] for node in versions] == [2, 1]


def test_a_deletion_removes_the_subtree_and_nothing_beside_it(running: Site) -> None:
    for path in ("/del/a_b", "/del/a_b/below", "/del/axb", "/del/a_bc"):
        running.put(path)
    running.distribute_everywhere(deep=["/del"])
    running.distribute_everywhere("/del/a_b", "/del/never-was", action="DELETE")
    found = {path: running.at("sub1", path) for path in ("/del/a_b/below", "/del/axb", "/del/a_bc")}
    assert [path for path, node in found.items() if node is None] == ["/del/a_b/below"]


def test_invalidate_and_test_go_through_the_journal_and_change_nothing(running: Site) -> None:
    running.put("/still/page")
    running.distribute_everywhere(deep=["/still"])
    before = running.hashes("/still")
    running.put("/still/page", properties={"not": "distributed"})
    for action in ("INVALIDATE", "TEST"):
        became = running.distribute_everywhere("/still/page", action=action)
        assert _states(running, became) == {"sub1": "IMPORTED", "sub2": "IMPORTED"}
    assert {**running.hashes("/still"), "author": ""} == {**before, "author": ""}


def test_r7_a_package_over_800_kib_goes_by_reference(running: Site) -> None:
    chance = random.Random(7)
    for number in range(30):
        running.put(f"/large/{number}", properties={"noise": chance.randbytes(40_000).hex()})
    became = running.distribute_everywhere(deep=["/large"])
    assert became["size"] > 819_200
    stored = list(
        (running.programs.folder / "blobs" / "packages").rglob(f"*{became['package_id']}*")
    )
    assert [path.stat().st_size for path in stored if path.is_file()] == [became["size"]]
    assert _same_everywhere(running, "/large")


def test_r5_a_repeated_request_is_one_package(running: Site) -> None:
    running.put("/once/page")
    first = running.distribute("/once/page", key="once-1")
    again = running.distribute("/once/page", key="once-1")
    assert (again["id"], again["offset"], again["repeated"]) == (first["id"], first["offset"], True)


def test_the_queue_of_a_subscriber_that_is_away_waits_for_it(running: Site) -> None:
    eventually(lambda: running.queue("sub2")["length"] == 0, what="what was before is done")
    running.subscribers["sub2"].stop()
    running.put("/away/page")
    offsets = [running.distribute("/away/page")["offset"] for _ in range(3)]
    waiting = eventually(lambda: running.queue("sub2")["length"] == 3 and running.queue("sub2"))
    assert waiting
    assert [entry["offset"] for entry in waiting["entries"]] == offsets
    running.subscribers["sub2"].start()
    eventually(lambda: running.queue("sub2")["state"] == "IDLE", what="sub2 caught up")
    eventually(lambda: _same_everywhere(running, "/away"), what="sub1, too, has imported it")
