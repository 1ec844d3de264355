"""Phase 2 of a bulk distribution: in order, each package once, through every answer there is."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import SupportsIndex

import pytest
from deltalake import write_deltalake

from packhorse.content.parts import SubtreePart
from packhorse.runtime.signals import set_by_signals
from packhorse_services.pipeline.bulk import publisher_api
from packhorse_services.pipeline.bulk import run as bulk_run
from packhorse_services.pipeline.bulk.cancelling import BulkCancelled, BulkStopped, Stopping
from packhorse_services.pipeline.bulk.progress import Amount
from packhorse_services.pipeline.bulk.publisher_api import PublisherAway, PublisherClient
from packhorse_services.pipeline.bulk.run import AppendedParts, Appending
from packhorse_services.pipeline.bulk.state import BulkState, StoredPart
from packhorse_services.pipeline.errors import Conflict, TablesUnusable, TaskFailed, TaskRefused
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.location import Location
from tests.harness.bulk import state_table
from tests.harness.fake_publisher import FakePublisher, fake_publisher

PARTS = 5


@dataclass
class Run:
    """One bulk distribution with prepared parts, sent to a fake publisher."""

    fake: FakePublisher
    location: Location
    reached: list[int] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    at: Callable[[int], None] = lambda _: None

    def __post_init__(self) -> None:
        self.state = BulkState(self.location, "b")
        self.stopping = Stopping(self.state)
        write_deltalake(self.location.delta_uri(tables.bulk_parts("b")), state_table("/top", PARTS))

    def run(self, token: str | None = "secret") -> AppendedParts:
        prepared = self.state.prepared()
        assert prepared is not None
        stopping = self.stopping

        def waiting(reason: str) -> None:
            stopping.check()
            self.said.append(reason)

        with (
            PublisherClient(self.fake.url, token, waiting) as publisher,
            set_by_signals(stopping.interrupted),
        ):
            appending = Appending(publisher, self.state, self.reexport, stopping)
            return appending.run("bulk-b", prepared, self._reached)

    def _reached(self, now: Amount) -> None:
        self.reached.append(now.parts)
        self.at(now.parts)

    def reexport(self, part: StoredPart) -> StoredPart:
        return replace(part, package_id=part.package_id + "-again", seen_sequence=99)

    def sent(self) -> list[tuple[int, str]]:
        return [(one["producer"]["sequence"], one["package_id"]) for one in self.fake.packages]


WHOLE = [(number, f"package-{number}") for number in range(PARTS)]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with fake_publisher() as fake:
        yield Run(fake, Location.parse(str(tmp_path / "tables")))


def test_parts_go_out_in_order_with_what_was_seen(run: Run) -> None:
    done = run.run()
    assert run.sent() == WHOLE
    assert (done.sent, done.earlier, done.exported_again, done.nodes) == (PARTS, 0, 0, 10 * PARTS)
    assert run.reached == list(range(PARTS + 1))
    assert run.fake.tokens == {"Bearer secret"}
    first = run.fake.packages[0]
    assert first["seen"] == {"epoch": 1, "sequence": 7}
    assert (first["deep_path"], first["range_from"], first["range_to"]) == ("/top", "", "/top/1")


def test_a_run_goes_on_behind_the_last_sequence_and_a_further_one_sends_nothing(run: Run) -> None:
    run.fake.register("bulk-b")
    run.fake.last["bulk-b"] = 2
    assert run.run().earlier == 3
    assert run.sent() == WHOLE[3:]
    assert run.run().sent == 0
    assert run.sent() == WHOLE[3:]


@pytest.mark.parametrize("fault", ["full", "away", "unanswered"])
def test_what_may_not_have_arrived_is_sent_again_and_kept_once(run: Run, fault: str) -> None:
    run.fake.faults = [fault] * 3
    run.run()
    assert run.sent() == WHOLE
    assert len(run.said) == 3


@pytest.mark.parametrize("fault", ["stale", "missing"])
def test_r6_a_stale_part_is_exported_again_and_goes_under_its_sequence(
    run: Run, fault: str
) -> None:
    run.fake.faults = ["", fault, fault, ""]
    assert run.run().exported_again == 2
    assert run.sent() == [WHOLE[0], (1, "package-1-again-again"), *WHOLE[2:]]
    assert run.fake.packages[1]["seen"] == {"epoch": 1, "sequence": 99}


def test_a_part_that_stays_stale_ends_the_run_and_the_next_goes_on_there(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_run, "EXPORTS", 2)
    run.fake.faults = ["", "stale", "stale"]
    with pytest.raises(TaskFailed, match=r"part 1 \(/top/1\)"):
        run.run()
    assert run.sent() == WHOLE[:1]
    run.run()
    assert run.sent() == WHOLE


def test_a_publisher_that_stays_away_ends_the_run(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_api, "PATIENCE_S", 0.0)
    run.fake.faults = ["away"] * 9
    with pytest.raises(PublisherAway, match="run it again"):
        run.run()


@pytest.mark.parametrize(("fault", "error"), [("forbidden", TaskRefused), ("used", Conflict)])
def test_a_refusal_ends_the_run(run: Run, fault: str, error: type[Exception]) -> None:
    run.fake.faults = [fault]
    with pytest.raises(error):
        run.run()
    assert run.sent() == []


def test_a_later_run_fences_an_earlier_one(run: Run) -> None:
    run.at = lambda out: run.fake.register("bulk-b") and None if out == 2 else None
    with pytest.raises(Conflict, match="fenced"):
        run.run()
    assert run.sent() == WHOLE[:2]


def test_cancel_stops_before_the_next_part_and_says_how_many_went_out(run: Run) -> None:
    run.at = lambda out: run.state.cancel() if out == 2 else None
    with pytest.raises(BulkCancelled, match="cancelled: 2 of 5 parts went out"):
        run.run()
    assert run.sent() == WHOLE[:2]
    run.state.cancel()
    assert run.state.cancelled()


class Forever(list[str]):
    """The same fault for each append."""

    def pop(self, _index: SupportsIndex = -1) -> str:
        return self[0]


def test_cancel_ends_the_wait_for_a_full_queue(run: Run) -> None:
    run.fake.faults = Forever(["full"])
    cancelling = threading.Timer(0.2, run.state.cancel)
    cancelling.start()
    with pytest.raises(BulkCancelled, match="0 of 5"):
        run.run()
    cancelling.join()
    assert run.sent() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_before_the_next_part(run: Run, number: signal.Signals) -> None:
    before = signal.getsignal(number)

    def interrupt(out: int) -> None:
        if out == 3:
            os.kill(os.getpid(), number)
            assert run.stopping.interrupted.wait(60)

    run.at = interrupt
    with pytest.raises(BulkStopped, match="interrupted: 3 of 5 parts went out"):
        run.run()
    assert run.sent() == WHOLE[:3]
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("bulk_id", ["c", "d", "e", "f", "g", "h"])
def test_of_several_exports_at_once_one_is_noted(run: Run, bulk_id: str) -> None:
    state, together = BulkState(run.location, bulk_id), threading.Barrier(4)

    def note(parts: int) -> int:
        together.wait()
        try:
            state.note(state_table("/top", parts))
        except TaskFailed:
            return 0
        return parts

    with ThreadPoolExecutor(4) as several:
        (noted,) = filter(None, several.map(note, range(1, 5)))
    assert [part.number for part in state.parts(after=-1)] == list(range(noted))


def test_a_state_that_can_not_be_read_is_one_line(run: Run) -> None:
    table = Path(run.location.delta_uri(tables.bulk_parts("b")))
    for file in table.glob("*.parquet"):
        file.write_bytes(b"torn")
    with pytest.raises(TablesUnusable) as refused:
        run.state.prepared()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("url", ["", "http://h:abc", "ftp://h"])
def test_a_url_of_no_publisher_is_refused(url: str) -> None:
    with pytest.raises(TaskRefused, match="PACKHORSE_PUBLISHER_URL"):
        PublisherClient(url, None, lambda _: None)


def test_a_token_that_is_none_is_refused() -> None:
    with pytest.raises(TaskRefused, match="token"):
        PublisherClient("http://127.0.0.1:9", "s€cret", lambda _: None)


def test_ranges_of_the_state_are_parts_of_the_subtree(run: Run) -> None:
    for part in run.state.parts(after=1):
        SubtreePart.between(part.deep_path, part.range_from, part.range_to)
