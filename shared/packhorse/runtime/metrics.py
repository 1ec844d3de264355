"""The catalogue of metrics: one place for every name, unit and label (labels are bounded).

A program reports those that it knows: a gauge that nobody sets would say 0 of something else.
"""

from collections.abc import Iterator

from prometheus_client import (
    REGISTRY,
    Counter,
    Gauge,
    Histogram,
    Info,
    Metric,
    disable_created_metrics,
)
from prometheus_client.registry import Collector

disable_created_metrics()  # type: ignore[no-untyped-call]

_OWN = "packhorse_"
_reported = {
    "packhorse_build",
    "packhorse_http_",
    "packhorse_periodic_",
    "packhorse_audit_",
}


def report(*prefixes: str) -> None:
    """Let this process report the metrics whose names begin so, from now on.

    Called by the component that sets them, when it is made.
    """
    _reported.update(prefixes)


class Reported(Collector):
    """What a scrape of this process shows: what it knows, and what Python says of itself."""

    def collect(self) -> Iterator[Metric]:
        """Yield the families that are reported."""
        prefixes = tuple(_reported)
        for family in REGISTRY.collect():
            if not family.name.startswith(_OWN) or family.name.startswith(prefixes):
                yield family


BUILD = Info("packhorse_build", "What runs here")

HTTP_REQUESTS = Counter(
    "packhorse_http_requests", "Requests answered", ["method", "route", "status"]
)
HTTP_SECONDS = Histogram(
    "packhorse_http_request_seconds",
    "Time from a request's first byte to its answer's end",
    ["route"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
)
HTTP_IN_FLIGHT = Gauge("packhorse_http_requests_in_flight", "Requests being answered now")
AUDIT_LEFT_OUT = Counter(
    "packhorse_audit_left_out", "Refusals without a line in the audit log, for there were too many"
)
PERIODIC_FAILURES = Counter("packhorse_periodic_failures", "Rounds that failed", ["name"])

PUBLISHER_REQUESTS = Counter(
    "packhorse_publisher_requests", "Distribution requests", ["agent", "state"]
)
PUBLISHER_PACKAGE_BYTES = Histogram(
    "packhorse_publisher_package_bytes",
    "Length of a package's body as stored",
    buckets=[4**power for power in range(4, 17)],
)
PUBLISHER_BUILD_SECONDS = Histogram(
    "packhorse_publisher_build_seconds", "Time to export and pack a group of requests"
)
PUBLISHER_APPEND_SECONDS = Histogram(
    "packhorse_publisher_append_seconds", "Time to append a group of packages to the journal"
)
PUBLISHER_EARLY_EXPORTS = Counter(
    "packhorse_publisher_early_exports",
    "Large requests exported without the append lock, and how it ended",
    ["outcome"],
)
PUBLISHER_OUTBOX_ENTRIES = Gauge(
    "packhorse_publisher_outbox_entries", "Packages committed and not known to be in the journal"
)
PUBLISHER_OUTBOX_OLDEST_SECONDS = Gauge(
    "packhorse_publisher_outbox_oldest_seconds", "Age of the oldest of them"
)
PUBLISHER_QUEUE_ENTRIES = Gauge(
    "packhorse_publisher_queue_entries",
    "Packages of a queue, at least",
    ["agent", "subscriber", "clearable"],
)
PUBLISHER_QUEUE_OLDEST_SECONDS = Gauge(
    "packhorse_publisher_queue_oldest_seconds",
    "Lag: seconds since its head entered the journal",
    ["agent", "subscriber"],
)
PUBLISHER_SUBSCRIBER_SILENT_SECONDS = Gauge(
    "packhorse_publisher_subscriber_silent_seconds",
    "Seconds since the subscriber's last announcement came",
    ["agent", "subscriber"],
)
PUBLISHER_SUBSCRIBERS = Gauge("packhorse_publisher_subscribers", "Subscribers known")
PUBLISHER_CACHE_ENTRIES = Gauge("packhorse_publisher_cache_entries", "Entries in the queue cache")
PUBLISHER_CACHE_BYTES = Gauge("packhorse_publisher_cache_bytes", "Bytes of the queue cache")
PUBLISHER_CACHE_FETCHES = Counter(
    "packhorse_publisher_cache_fetches", "Ranges fetched from the journal on demand"
)
PUBLISHER_STATUSES_RECORDED = Counter(
    "packhorse_publisher_statuses_recorded", "Records of the status topic that were taken in"
)
PUBLISHER_STATUSES_LAG = Gauge(
    "packhorse_publisher_statuses_behind_records", "Records of the status topic still to take in"
)
PUBLISHER_EVENTS = Counter(
    "packhorse_publisher_events", "Packages published on the event topic as distributed"
)
PUBLISHER_EVENTS_MISSED = Counter(
    "packhorse_publisher_events_missed", "Offsets that left the log before all subscribers had them"
)
PUBLISHER_EVENTS_LOST = Counter(
    "packhorse_publisher_events_lost", "Events that the event topic can't take any more"
)
PUBLISHER_EVENT_STREAMS = Gauge(
    "packhorse_publisher_event_streams", "Clients that follow the events"
)

SUBSCRIBER_OFFSET = Gauge("packhorse_subscriber_offset", "Last processed offset", ["agent"])
SUBSCRIBER_LAG_ENTRIES = Gauge(
    "packhorse_subscriber_behind_records",
    "Records of the log still to process, all agents'",
    ["agent"],
)
SUBSCRIBER_LAG_SECONDS = Gauge(
    "packhorse_subscriber_lag_seconds",
    "Seconds since the package in front entered the journal, 0 when there is none; absent while "
    "that is not known",
    ["agent"],
)
SUBSCRIBER_IMPORT_SECONDS = Histogram(
    "packhorse_subscriber_import_seconds", "Time of an import transaction", ["status"]
)
SUBSCRIBER_CURRENT_IMPORT_SECONDS = Gauge(
    "packhorse_subscriber_current_import_seconds",
    "How long the present import has taken",
    ["agent"],
)
SUBSCRIBER_PACKAGES = Counter(
    "packhorse_subscriber_packages",
    "Packages processed; without an action where they were not imported",
    ["action", "status"],
)
SUBSCRIBER_IMPORT_ERRORS = Counter(
    "packhorse_subscriber_import_errors", "Imports that failed", ["kind"]
)
SUBSCRIBER_RETRIES = Gauge(
    "packhorse_subscriber_retries", "Failed attempts of the package in front", ["agent"]
)
SUBSCRIBER_DISTRIBUTION_SECONDS = Histogram(
    "packhorse_subscriber_distribution_seconds",
    "From accepted at the publisher to imported here",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300, 3600),
)
SUBSCRIBER_JOURNAL_SECONDS = Histogram(
    "packhorse_subscriber_journal_seconds",
    "From appended to the journal to read here",
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 10, 60, 600),
)
SUBSCRIBER_STATE = Gauge(
    "packhorse_subscriber_state", "1 for the state that a subscription is in", ["agent", "state"]
)
SUBSCRIBER_READY = Gauge(
    "packhorse_subscriber_ready",
    "1 once /readyz lets readers come, and why; 0 and why not",
    ["reason"],
)
SUBSCRIBER_READY_SECONDS = Gauge(
    "packhorse_subscriber_ready_seconds",
    "How long after its start the subscriber was ready; absent until then",
    ["reason"],
)
SUBSCRIBER_SNAPSHOTS = Counter(
    "packhorse_subscriber_snapshots", "Snapshots loaded, or not", ["outcome"]
)
SUBSCRIBER_SNAPSHOT_NODES = Gauge(
    "packhorse_subscriber_snapshot_nodes", "Nodes of the snapshot loaded now or last", ["which"]
)

CLEANUP_RUNS = Counter("packhorse_cleanup_runs", "Cleanup runs", ["outcome"])
CLEANUP_REMOVED = Counter("packhorse_cleanup_removed", "Stored packages removed", ["reason"])
CLEANUP_REMOVED_BYTES = Counter("packhorse_cleanup_removed_bytes", "Their bytes", ["reason"])
CLEANUP_LAST_SUCCESS = Gauge(
    "packhorse_cleanup_last_success_seconds",
    "When the last successful run ended that removed, on whichever replica, since 1970",
)

TOPOLOGY_EVENT_STREAMS = Gauge(
    "packhorse_topology_event_streams", "Clients that follow the topology's events"
)
CONSOLE_EVENT_STREAMS = Gauge("packhorse_console_event_streams", "Browsers that follow events")
JOBS_EVENT_STREAMS = Gauge(
    "packhorse_jobs_event_streams", "Clients that follow the jobs service's events"
)

PIPELINE_RECORDS = Counter(
    "packhorse_pipeline_records", "Records that a streaming query has dealt with", ["query"]
)
PIPELINE_BATCH_SECONDS = Histogram(
    "packhorse_pipeline_batch_seconds",
    "Time to write and commit a streaming query's batch",
    ["query"],
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
PIPELINE_LAG_RECORDS = Gauge(
    "packhorse_pipeline_behind_records",
    "Records that a streaming query has still to read",
    ["query"],
)
PIPELINE_LAST_BATCH = Gauge(
    "packhorse_pipeline_last_batch_seconds",
    "When a streaming query's last batch ended, since 1970",
    ["query"],
)

TOPOLOGY_INSTANCES = Gauge(
    "packhorse_topology_instances", "Instances of the last known topology, all clusters together"
)
TOPOLOGY_LEADER = Gauge(
    "packhorse_topology_leader", "1 while this instance leads its cluster in a current view"
)
TOPOLOGY_CURRENT = Gauge("packhorse_topology_current", "1 while the topology's view holds")
TOPOLOGY_CHANGES = Counter(
    "packhorse_topology_changes", "Events of the topology: INIT, CHANGING, CHANGED, …", ["kind"]
)
TOPOLOGY_EXCHANGES = Counter(
    "packhorse_topology_exchanges", "Exchanges that connectors have begun", ["outcome"]
)
TOPOLOGY_REJECTED = Counter(
    "packhorse_topology_rejected", "Messages of connectors that were not believed", ["reason"]
)
TOPOLOGY_LISTENER_FAILURES = Counter(
    "packhorse_topology_listener_failures", "Calls of topology listeners that raised"
)

SCHEDULE_FIRE_TIMES = Counter(
    "packhorse_schedule_fire_times", "Fire times of schedules, by outcome", ["outcome"]
)
SCHEDULE_LATENESS = Histogram(
    "packhorse_schedule_lateness_seconds",
    "How long after its fire time a schedule fired",
    buckets=(0.1, 0.5, 1, 5, 15, 60, 300, 3600, 86400),
)

EVENTS_STORED = Counter("packhorse_events_stored", "Events that this process stored for others")
EVENTS_RECEIVED = Counter("packhorse_events_received", "Stored events that this process was given")
EVENTS_LOST = Counter(
    "packhorse_events_lost", "Events that a handler had no room for because it was slow"
)
EVENT_GAPS = Counter(
    "packhorse_event_gaps", "Times that events were pruned before this instance had them"
)
EVENT_HANDLER_FAILURES = Counter(
    "packhorse_event_handler_failures", "Calls of event handlers that raised"
)
EVENT_SLOW_HANDLERS = Gauge(
    "packhorse_event_slow_handlers", "Event handlers that are more than 5 s behind"
)
EVENTS_PRUNED = Counter("packhorse_events_pruned", "Stored events that were removed as old")

JOBS_ENDED = Counter(
    "packhorse_jobs_ended",
    "Attempts of jobs that ended here: the job's state then, or LOST",
    ["queue", "state"],
)
JOBS_ACTIVE = Gauge("packhorse_jobs_active", "Attempts of jobs under way here", ["queue"])
JOBS_SECONDS = Histogram(
    "packhorse_jobs_seconds",
    "Time that consumers had jobs",
    ["queue"],
    buckets=(0.01, 0.1, 0.5, 1, 5, 30, 120, 600, 3600),
)
JOBS_WAITED_SECONDS = Histogram(
    "packhorse_jobs_waited_seconds",
    "Time from when a job might have begun until it did here",
    ["queue"],
    buckets=(0.01, 0.1, 0.5, 1, 5, 30, 120, 600, 3600),
)
JOBS_UNFINISHED = Gauge(
    "packhorse_jobs_unfinished",
    "Jobs of the cluster that are not done; no more than are counted (10,000 of a topic)",
    ["queue", "state"],
)
JOBS_RESCUED = Counter(
    "packhorse_jobs_rescued", "Jobs taken from workers whose lease was over, wherever those were"
)
JOBS_LEASE = Gauge("packhorse_jobs_lease", "1 while this process may do jobs")
