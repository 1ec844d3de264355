"""What is lost at one subscriber is found, and mended there alone (R35)."""

from packhorse.client.blocking import Client
from packhorse.db.connect import connect
from tests.harness.site import Site
from tests.harness.waiting import eventually

_TOP = "/compared"


def _client(site: Site, name: str) -> Client:
    return Client(
        site.publisher.url,
        content=site.content.url,
        subscriber=site.subscribers[name].url,
        token=site.programs.token,
    )


def test_r35_what_differs_at_one_subscriber_is_mended_there_alone(running: Site) -> None:
    for path in (_TOP, *(f"{_TOP}/{number}" for number in range(5))):
        running.put(path)
    running.distribute_everywhere(deep=[_TOP])
    with connect(running.database_urls["sub1"], "tests") as broken:
        broken.execute("DELETE FROM content.node WHERE path = %s", (f"{_TOP}/1",))
        broken.execute("UPDATE content.node SET type = 'x' WHERE path = %s", (f"{_TOP}/2",))
        broken.execute(
            "INSERT INTO content.node SELECT %s || name, 'page', '{}', '{}' "
            "FROM unnest(ARRAY['/more', '/more/below']) AS name",
            (_TOP,),
        )
    expected = [
        {"path": f"{_TOP}/1", "kind": "missing"},
        {"path": f"{_TOP}/2", "kind": "different"},
        {"path": f"{_TOP}/more", "kind": "extra"},
        {"path": f"{_TOP}/more/below", "kind": "extra"},
    ]
    with _client(running, "sub1") as client:
        found = client.compare(_TOP, "sub1", wait=60)
        assert (found.differences, found.nodes, found.under_way) == (expected, 6, 0)
        mended = [running.everywhere({"id": one}) for one in client.mend("sub1", expected).ids]
        for one in mended:
            states = {each["subscriber"]: each["state"] for each in one["subscribers"]}
            assert (states["sub1"], states["sub2"]) == ("IMPORTED", "SKIPPED")
        assert client.compare(_TOP, "sub1", wait=60).differences == []
    assert len({running.hashes(_TOP)[name] for name in ("sub1", "sub2")}) == 1
    with _client(running, "sub2") as client:
        assert client.compare(_TOP, "sub2", wait=60).differences == []


def test_r35_two_subscribers_with_filters_of_their_own_are_equal_by_them(running: Site) -> None:
    filters = {
        "north": {
            "include": "/filtered/north,/filtered/all",
            "exclude": "/filtered/all/drafts",
            "map_paths": "/filtered/north=/north/site",
            "exclude_properties": "ti*",
        },
        "south": {"exclude": "/filtered/north"},
    }
    top = "/filtered"
    for name, own in filters.items():
        running.join(name, start="latest", announce_s=1, **own)
    for part in ("north", "south", "all", "all/drafts"):
        for path in (f"{top}/{part}", f"{top}/{part}/a", f"{top}/{part}/b"):
            running.put(path, properties={"title": path, "text": "x"})
    running.distribute_everywhere(deep=[top])
    running.remove(f"{top}/north/a")
    became = running.distribute_everywhere(f"{top}/north/a", action="DELETE")
    told = {one["subscriber"]: (one["state"], one["reason"]) for one in became["subscribers"]}
    assert told["south"] == ("SKIPPED", f"PACKHORSE_EXCLUDE names {top}/north")
    assert (told["north"][0], told["sub1"][0]) == ("IMPORTED", "IMPORTED")
    found = running.get("/subscribers/north")
    assert (found["include"], found["exclude"]) == (
        [f"{top}/all", f"{top}/north"],
        [f"{top}/all/drafts"],
    )
    assert (found["map_paths"], found["exclude_properties"]) == (
        {f"{top}/north": "/north/site"},
        ["ti*"],
    )
    mapped = running.at("north", "/north/site/b")
    assert mapped is not None
    assert mapped["properties"] == {"text": "x"}
    assert running.at("north", "/north/site/a") is None
    assert running.at("north", f"{top}/north") is None
    assert running.at("north", f"{top}/south/a") is None
    assert running.at("south", f"{top}/all/drafts/a") is not None
    for name in filters:
        with _client(running, name) as client:
            assert client.compare(top, name, wait=60).differences == []
    with connect(running.database_urls["north"], "tests") as broken:
        broken.execute("DELETE FROM content.node WHERE path = '/north/site/b'")
        broken.execute("INSERT INTO content.node VALUES ('/north/site/c', 'page', '{}', '{}')")
    with _client(running, "north") as client:
        found = client.compare(top, "north", wait=60)
        assert [(one["path"], one["own_path"], one["kind"]) for one in found.differences] == [
            (f"{top}/north/b", "/north/site/b", "missing"),
            (f"{top}/north/c", "/north/site/c", "extra"),
        ]
        for one in client.mend("north", found.differences).ids:
            running.everywhere({"id": one})
        assert client.compare(top, "north", wait=60).differences == []
    url = running.database_urls["north"]
    running.leave("north")
    taken = f"{top}/all,{top}/south"
    running.join("north", url, announce_s=1, include=taken, exclude_properties="ti*")
    eventually(lambda: running.get("/subscribers/north")["exclude"] == [], what="it is known")
    with _client(running, "north") as client:
        found = client.compare(top, "north", wait=60)
        widened = [f"{top}/{path}" for path in ("all/drafts", "south")]
        assert [(one["path"], one["kind"]) for one in found.differences] == [
            (path, "missing") for one in widened for path in (one, f"{one}/a", f"{one}/b")
        ]
        for one in client.mend("north", found.differences).ids:
            running.everywhere({"id": one})
        assert client.compare(top, "north", wait=60).differences == []
    assert running.at("north", "/north/site/b") is not None  # what it had it keeps
    for name in filters:
        running.leave(name)
