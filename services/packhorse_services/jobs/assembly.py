"""Makes the parts of a jobs service from its settings."""

from packhorse.clock import SystemClock
from packhorse.db.connect import open_pool
from packhorse.jobs.hints import EVENTS
from packhorse.jobs.host import DUTIES, open_jobs
from packhorse.jobs.jobs import Jobs
from packhorse.jobs.ledger.gauges import Gauges
from packhorse.runtime.auth import Authenticator
from packhorse.topology.own_cluster import Announced, join
from packhorse_services.jobs.app import JobsService, jobs_service
from packhorse_services.jobs.housekeeping import QUEUE, SCHEDULES, consumers_of
from packhorse_services.jobs.hub import Hub
from packhorse_services.jobs.parts import Parts
from packhorse_services.jobs.settings import Settings

ROLE = "jobs"
_CONNECTIONS = 8


def assemble(settings: Settings, authenticator: Authenticator) -> JobsService:
    """Put a jobs service together; nothing connects before it is started."""
    url = settings.database_url.get_secret_value()
    announced = Announced(ROLE, endpoint=settings.endpoint, duties=DUTIES)
    cluster = join(url, settings.topology, announced)
    pool = open_pool(url, "jobs-routes", size=_CONNECTIONS)
    hub = Hub(pool.connection, max_streams=settings.event_streams)
    host = open_jobs(
        url,
        cluster,
        consumers=consumers_of(pool.connection, cluster.discovery),
        queues=[QUEUE],
        schedules=SCHEDULES,
    )
    host.hints.on(EVENTS, hub.hear)
    parts = Parts(
        pool=pool,
        jobs=Jobs(pool.connection, cluster.discovery.instance_id),
        hub=hub,
        discovery=cluster.discovery,
        clock=SystemClock(),
    )
    components = (cluster, host, hub, Gauges(pool.connection))
    return jobs_service(parts, authenticator, components=components, docs=settings.docs)
