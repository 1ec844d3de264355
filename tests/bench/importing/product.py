"""The product: a real subscriber process on a backlog."""

from packhorse.db.connect import connect
from packhorse.jobs.content_changes.watches import ContentWatch, add_watch
from tests.bench.importing.material import Material
from tests.bench.importing.measuring import Cost, Looker, Watch
from tests.harness.processes import running_programs


def product(made: Material, journal: str, *, watched: bool = False) -> Cost:
    """Import everything with one subscriber; its start, the first tenth, is left out."""
    url = made.databases.new("product")
    if watched:
        with connect(url, "bench") as connection:
            add_watch(connection, ContentWatch("bench"))
    prefix = made.topics.package.removesuffix("_package")
    settings = {"topic_prefix": prefix, "blobs_url": made.blobs}
    with running_programs(made.journals[journal], **settings) as programs, Looker(url) as looker:
        subscriber = programs.subscriber("bench", url)
        subscriber.start()
        skipped, first = made.mark(0.1)
        looker.wait_for(first, lambda: subscriber.running)
        watch = Watch(made.databases.server, made.broker.pid, [subscriber.pid])
        own = looker.cpu_s()
        count, last = made.mark(1.0)
        looker.wait_for(last, lambda: subscriber.running)
        cost = watch.cost(count - skipped, looker.cpu_s() - own)
        subscriber.stop()
    made.check(url, len(made.packages))
    return cost
