"""Any interleaving of appends, slow clients, reconnects to other replicas, restarts, retention.

Each client sees each event of a log exactly once, in the log's order, and what the log has lost
meanwhile is reported as a gap (R2).
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from packhorse_services.publisher.live.event_id import LOGS
from packhorse_services.publisher.live.events import EventType
from packhorse_services.publisher.live.stream_reader import StreamReader
from tests.harness.depth import examples
from tests.harness.live import NAMES, Client, Logs, Replica, read_round

CLIENTS, REPLICAS = 3, 2
some_source = st.sampled_from(list(LOGS))
some_client = st.integers(0, CLIENTS - 1)
some_replica = st.integers(0, REPLICAS - 1)


class LiveEvents(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.logs = Logs()
        self.replicas = [Replica(self.logs) for _ in range(REPLICAS)]
        self.clients = [Client(self.logs) for _ in range(CLIENTS)]
        self.streams: dict[int, tuple[Replica, StreamReader]] = {}

    @rule(source=some_source, count=st.integers(1, 8), agent=st.sampled_from(["main", "other"]))
    def append(self, source: EventType, count: int, agent: str) -> None:
        for _ in range(count):
            self.logs.append(source, agent)

    @rule(replica=some_replica, source=some_source, count=st.integers(1, 8), keep=st.booleans())
    def tail(self, replica: int, source: EventType, count: int, keep: bool) -> None:
        self.replicas[replica].tail(source, count, keep=keep)

    @rule(replica=some_replica)
    def restart(self, replica: int) -> None:
        gone = self.replicas[replica]
        self.replicas[replica] = Replica(self.logs)
        self.streams = {key: one for key, one in self.streams.items() if one[0] is not gone}

    @rule(client=some_client, replica=some_replica)
    def connect(self, client: int, replica: int) -> None:
        chosen = self.replicas[replica]
        self.streams[client] = chosen, self.clients[client].connect(chosen)

    @rule(client=some_client, count=st.integers(0, 10))
    def read_and_be_cut_off(self, client: int, count: int) -> None:
        """The client gets some of what the stream has sent; the rest is lost on the way."""
        if client in self.streams:
            replica, reader = self.streams.pop(client)
            for reported in list(read_round(replica, reader))[:count]:
                self.clients[client].take(reported)

    @rule(client=some_client)
    def read(self, client: int) -> None:
        if client in self.streams:
            for reported in read_round(*self.streams[client]):
                self.clients[client].take(reported)

    @rule(source=some_source, share=st.floats(0, 1))
    def forget(self, source: EventType, share: float) -> None:
        bounds = self.logs.journal.bounds(NAMES[source])
        before = bounds.oldest + int(share * (bounds.next - bounds.oldest))
        self.logs.journal.truncate(NAMES[source], before)

    @rule(source=some_source)
    def create_anew(self, source: EventType) -> None:
        self.logs.create_anew(source)

    @invariant()
    def rings_are_bounded(self) -> None:
        for replica in self.replicas:
            for log in replica.logs.values():
                assert len(log.recent._events) <= 5

    def teardown(self) -> None:
        """In the end everybody has everything, through any replica."""
        for replica in self.replicas:
            for source in LOGS:
                for _ in range(2):  # the first one may only find out that the topic is another
                    replica.tail(source, 10_000)
        for number, client in enumerate(self.clients):
            replica = self.replicas[number % REPLICAS]
            reader = client.connect(replica)
            before = ""
            while before != reader.id:
                before = reader.id
                for reported in read_round(replica, reader):
                    client.take(reported)
            assert [client.next_of(source) for source in LOGS] == [None] * len(LOGS)


LiveEvents.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
TestEachClientSeesEachEventOnce = LiveEvents.TestCase
