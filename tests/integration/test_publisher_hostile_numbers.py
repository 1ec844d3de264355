"""R30: whatever numbers a record in the package topic claims, the author goes on publishing."""

from pathlib import Path

import pytest

from packhorse.messaging.api import Outgoing
from packhorse.messaging.numbered import LARGEST
from packhorse.wire.messages import Action, PackageEntry, PackageMessage
from packhorse.wire.package_codec import encode_package
from packhorse_services.publisher.outbox import append_state
from packhorse_services.publisher.outbox.journal_search import Sought, search
from tests.harness.publisher_service import PublisherService, as_
from tests.harness.publisher_site import Site, publish
from tests.harness.publishing import AGENT, TOPICS

BIGGEST = 2**63 - 1


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path)


def append(
    s: PublisherService, epoch: int = 1, sequence: int = 1, headers: dict[str, bytes] | None = None
) -> None:
    """Append a package that claims to be the author's own."""
    producer = s.author.rows("SELECT producer::text FROM bookkeeping.slot")[0][0]
    entry = PackageEntry(
        "hostile", AGENT, Action.TEST, producer=producer, epoch=epoch, sequence=sequence
    )
    encoded = encode_package(PackageMessage(entry))
    record = Outgoing(encoded.value, {**encoded.headers, **(headers or {})})
    s.author.journal.append(TOPICS.package, record).result()


def of_source(name: str, epoch: int, sequence: int = 1) -> dict[str, bytes]:
    return {
        "producer-name": name.encode(),
        "producer-epoch": b"%d" % epoch,
        "producer-sequence": b"%d" % sequence,
    }


@pytest.mark.parametrize(
    ("epoch", "sequence"),
    [(BIGGEST, 1), (1, BIGGEST), (-BIGGEST - 1, 1), (LARGEST, LARGEST), (LARGEST + 1, 0)],
)
def test_r30_an_entry_with_any_epoch_keeps_nobody_from_publishing(
    site: Site, epoch: int, sequence: int
) -> None:
    async def first(s: PublisherService) -> None:
        await publish(s, 1)
        append(s, epoch, sequence)

    async def then(s: PublisherService) -> None:
        await publish(s, 2)

    site.run(first)
    for _ in range(2):
        site.run(then)


@pytest.mark.parametrize("epoch", [BIGGEST, LARGEST, LARGEST // 2])
def test_r30_a_source_with_any_epoch_keeps_nobody_from_registering(site: Site, epoch: int) -> None:
    async def first(s: PublisherService) -> None:
        await publish(s, 1)
        append(s, headers=of_source(f"{AGENT}/a/b", epoch))

    async def then(s: PublisherService) -> None:
        await publish(s, 1)
        registered = await s.client.put("/producers/mine")
        assert registered.status_code == 200, registered.text
        number = {"name": "mine", "epoch": registered.json()["epoch"], "sequence": 1}
        await s.accepted("/p1", producer=number)

    site.run(first)
    site.run(then)


def test_r30_sources_that_the_journal_names_are_no_more_than_an_agent_may_have(
    database_url: str, tmp_path: Path
) -> None:
    site = Site(database_url, tmp_path)

    async def first(s: PublisherService) -> None:
        await publish(s, 1)
        assert (await s.client.put("/producers/mine")).status_code == 200
        for number in range(5):
            append(s, headers=of_source(f"{AGENT}/s{number}/b", 2, number))
        append(s, headers=of_source(f"{AGENT}/mine/admin", 1, 7))

    async def then(s: PublisherService) -> None:
        await publish(s, 1)
        mine = await s.get("/producers/mine")
        assert mine["last_sequence"] == 7
        names = s.author.rows("SELECT name FROM bookkeeping.producer ORDER BY name")
        assert names == [("mine",), ("s3",), ("s4",)]
        found = search(s.journal, TOPICS.package, 0, Sought(sources=2), beat=lambda: None)
        assert list(found.sources) == [f"{AGENT}/s4/b", f"{AGENT}/mine/admin"]

    site.run(first)
    PublisherService(database_url, tmp_path, producers=3).run(then)


def test_r30_a_journal_that_the_database_refuses_does_not_refuse_requests(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else a record may do to a statement: the requests go to the outbox."""

    async def first(s: PublisherService) -> None:
        await publish(s, 1)
        append(s, 7)

    async def then(s: PublisherService) -> None:
        accepted = await s.distribute("/p1", headers=as_("admin"))
        assert (accepted.status_code, accepted.json()["offset"]) == (202, None)

    site.run(first)
    raised = append_state.raise_epoch
    monkeypatch.setattr(append_state, "raise_epoch", lambda c, _: raised(c, BIGGEST))
    site.run(then)
