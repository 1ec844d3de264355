"""Makes the parts of a jobs service from its settings."""

from packhorse.app.watching import ContentWatches
from packhorse.db.pool import SharedPool
from packhorse.jobs.channels import EVENTS
from packhorse.jobs.declaring import Declared
from packhorse.jobs.host import LEADER_TASKS, open_jobs
from packhorse.jobs.jobs import Jobs
from packhorse.jobs.ledger.gauges import Gauges
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.http import Service
from packhorse.topology.own_cluster import InstanceProperties, join
from packhorse_services.jobs.app import jobs_service
from packhorse_services.jobs.hooks.delivery import add_deliveries
from packhorse_services.jobs.hooks.hook import queue_of, watch_of
from packhorse_services.jobs.housekeeping import QUEUE, SCHEDULES, consumers_of
from packhorse_services.jobs.http.event_feed import JobEventHub
from packhorse_services.jobs.http.parts import JobsServices
from packhorse_services.jobs.settings import Settings

ROLE = "jobs"
_CONNECTIONS = 8


def assemble(settings: Settings, authenticator: Authenticator) -> Service:
    """Put a jobs service together; nothing connects before it is started."""
    url = settings.database_url.get_secret_value()
    announced = InstanceProperties(ROLE, endpoint=settings.endpoint, leader_tasks=LEADER_TASKS)
    cluster = join(url, settings, announced)
    pool = SharedPool(url, "jobs")
    share = pool.share(_CONNECTIONS)
    hub = JobEventHub(share.connection, max_streams=settings.event_streams)
    consumers = consumers_of(share.connection, cluster.discovery)
    add_deliveries(consumers, settings.hooks)
    watches = [watch_of(name, hook) for name, hook in settings.hooks.items()]
    host = open_jobs(
        url,
        cluster,
        consumers=consumers,
        declared=Declared([QUEUE, *map(queue_of, settings.hooks)], SCHEDULES),
        pool=pool,
    )
    host.hints.on(EVENTS, hub.hear)
    parts = JobsServices(
        pool=share,
        jobs=Jobs(share.connection, cluster.discovery.instance_id),
        hub=hub,
        discovery=cluster.discovery,
    )
    watching = ContentWatches(share.connection, watches)
    components = (pool, watching, cluster, host, hub, Gauges(share.connection))
    return jobs_service(parts, authenticator, components=components, docs=settings.docs)
