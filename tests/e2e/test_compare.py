"""What is lost at one subscriber is found, and mended there alone (R35)."""

from packhorse.client.blocking import Client
from packhorse.db.connect import connect
from tests.harness.site import Site

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
