"""Whatever is lost, late or read again, a verdict is what the golden subscriber decided."""

from dataclasses import dataclass, replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from packhorse.wire.messages import DiscoveryMessage, Status
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.staging.staging import Staging, StagingVerdict
from tests.harness.staging import START, announcement, arrival, status

REFUSALS = tuple(one for one in Status if one is not Status.IMPORTED)


@dataclass
class Golden:
    """The golden subscriber as it is: where it is, and what it has not sent yet."""

    position: int = -1
    started: int = -1
    unsent: list[tuple[int, Status]] | None = None


class StagingMachine(RuleBasedStateMachine):
    """The golden one decides, sends, is lost; its topics are read late, in parts, and again."""

    def __init__(self) -> None:
        super().__init__()
        self.staging = Staging("golden")
        self.golden = Golden(unsent=[])
        self.log: list[tuple[int, Status]] = []
        self.passed: set[int] = set()
        self.announcements: list[DiscoveryMessage] = []
        self.position = -1
        self.heard = self.read_to = 0
        self.said: DiscoveryMessage | None = None
        self.wanted = 0
        self.end: int | None = None

    # The golden subscriber.

    @rule(became=st.sampled_from([*Status, None]))
    def decides(self, became: Status | None) -> None:
        assert self.golden.unsent is not None
        self.golden.position += 1
        if became is None:
            self.passed.add(self.golden.position)
        else:
            self.golden.unsent.append((self.golden.position, became))

    @rule(data=st.data())
    def sends_some_in_any_order(self, data: st.DataObject) -> None:
        """An append may fail and be done again, so a later status can come first."""
        unsent = self.golden.unsent or []
        self.log += data.draw(st.lists(st.sampled_from(unsent), max_size=3)) if unsent else []

    @rule()
    def sends_all_and_announces(self) -> None:
        self.log += self.golden.unsent or []
        self.golden.unsent = []
        self.announce(self.golden.position)

    @rule()
    def announces_before_it_has_sent(self) -> None:
        unsent = self.golden.unsent or []
        self.announce(unsent[0][0] - 1 if unsent else self.golden.position)

    def announce(self, settled: int) -> None:
        self.announcements.append(
            announcement(settled, offset=self.golden.position, started_offset=self.golden.started)
        )

    @precondition(lambda self: not self.golden.unsent)
    @rule(latest=st.booleans())
    def is_created_anew(self, latest: bool) -> None:
        start = self.golden.position if latest else -1
        self.golden = Golden(start, start, [])
        self.announce(start)

    # The follower.

    @rule()
    def reads_again_when_that_is_wanted(self) -> None:
        if self.staging.wanted() != self.wanted:
            self.wanted, self.read_to, self.end = self.staging.wanted(), 0, len(self.log)
            self.staging.covers(0)

    @rule()
    def hears_an_announcement(self) -> None:
        if self.heard < len(self.announcements):
            self.said, self.end = self.announcements[self.heard], len(self.log)
            self.heard += 1
            self.staging.announced(self.said)

    @precondition(lambda self: self.wanted)
    @rule(count=st.integers(1, 5))
    def reads_some(self, count: int) -> None:
        for offset, became in self.log[self.read_to : self.read_to + count]:
            self.staging.status(status(offset, became))
        self.read_to = min(len(self.log), self.read_to + count)
        if self.end is not None and self.read_to >= self.end:
            self.end = None
            self.staging.read_to_end(self.wanted, self.said)

    # The subscription.

    @rule()
    def looks_at_the_next_package(self) -> None:
        offset = self.position + 1
        verdict = self.ruling(offset)
        if verdict is not StagingVerdict.WAIT:
            self.position = offset

    @rule(offset=st.integers(-1, 5))
    def is_moved_back(self, offset: int) -> None:
        self.position = min(self.position, offset)

    @rule()
    def everything_is_decided(self) -> None:
        """Once all is sent and read, no package that the golden one is past has to wait."""
        self.sends_all_and_announces()
        self.ruling(self.position + 1)
        self.reads_again_when_that_is_wanted()
        while self.heard < len(self.announcements):
            self.hears_an_announcement()
        self.reads_some(len(self.log) + 1)
        for offset in range(self.position + 1, self.golden.position + 1):
            known = any(reported == offset for reported, _ in self.log)
            if known or offset > self.golden.started:
                assert self.ruling(offset) is not StagingVerdict.WAIT

    def ruling(self, offset: int) -> StagingVerdict:
        position = replace(START, mark=Mark(self.position, ""))
        verdict = self.staging.ruling(position, arrival(offset)).verdict
        reported = [became for reported, became in self.log[: self.read_to] if reported == offset]
        if verdict is StagingVerdict.SKIP:
            assert reported[-1] in REFUSALS
        elif verdict is StagingVerdict.ACCEPT and reported:
            assert reported[-1] is Status.IMPORTED
        elif verdict is StagingVerdict.ACCEPT:
            assert offset in self.passed
        return verdict

    @invariant()
    def only_what_lies_above_the_subscription_is_kept(self) -> None:
        for subscription in self.staging._subscriptions.values():
            assert all(offset > subscription.decided.base for offset in subscription.reasons)


TestStagingMachine = StagingMachine.TestCase
