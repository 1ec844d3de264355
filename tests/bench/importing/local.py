"""Anchors without a program of their own, or with one of a few lines."""

import os
import subprocess
import sys

import psycopg
from psycopg import Connection

from packhorse.blobs.open import open_blobs
from packhorse.content import tree
from packhorse.content.tree import copy_in
from packhorse.db.connect import connect
from packhorse.messaging.open import open_journal
from packhorse.packages.body import unpack
from packhorse.wire.package_codec import decode_package
from tests.bench.importing.material import Material
from tests.bench.importing.measuring import Cost, Looker, Watch

_LOOP_PACKAGES = 2_000
_GROUP = 256

_UPSERT = """
    INSERT INTO content.node (path, type, properties, binaries) VALUES (%s, %s, %s, '{}')
    ON CONFLICT (path) DO UPDATE SET type = excluded.type, properties = excluded.properties
"""


def copy(made: Material) -> Cost:
    """COPY the nodes as they are at the end, a transaction each 5,000."""
    url = made.databases.new("copy")
    nodes = made.final(len(made.packages))
    with psycopg.connect(url) as connection:
        watch = Watch(made.databases.server, made.broker.pid, [os.getpid()])
        copy_in(connection, nodes)
        connection.commit()
        cost = watch.cost(len(nodes) // made.nodes)
    made.check(url, len(made.packages))
    return cost


def replication(made: Material) -> Cost:
    """Logical replication of the same table, 256 packages a transaction; both ends' CPU."""
    source, target = made.databases.new("source"), made.databases.new("target")
    name = target.rpartition("/")[2]
    with psycopg.connect(source, autocommit=True) as connection:
        connection.execute("CREATE PUBLICATION bench FOR TABLE content.node")
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
        _write_groups(connection, made)
    with psycopg.connect(target, autocommit=True) as connection, Looker(target) as looker:
        watch = Watch(made.databases.server, made.broker.pid, [])
        connection.execute(
            f"CREATE SUBSCRIPTION {name} CONNECTION '{source}' PUBLICATION bench "
            f"WITH (create_slot = false, copy_data = false, slot_name = '{name}')"
        )
        count, last = made.mark(1.0)
        looker.wait_for(last, lambda: True)
        cost = watch.cost(count, looker.cpu_s())
        connection.execute(f"ALTER SUBSCRIPTION {name} DISABLE")
        connection.execute(f"DROP SUBSCRIPTION {name}")
    made.check(target, len(made.packages))
    return cost


def _write_groups(connection: Connection, made: Material) -> None:
    for start in range(0, len(made.packages), _GROUP):
        group = made.packages[start : start + _GROUP]
        with connection.transaction():
            tree.upsert(connection, [node for nodes in group for node in nodes])


def loop(made: Material) -> Cost:
    """A user's own program: one transaction a package, the position in it."""
    url = made.databases.new("loop")
    count = min(_LOOP_PACKAGES, len(made.packages))
    command = [sys.executable, "-m", "tests.bench.importing.local"]
    arguments = [url, made.journals["kafka"], made.topics.package, made.blobs, str(count)]
    with Looker(url) as looker:
        process = subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE)
        looker.wait_for(made.packages[0][0].path, lambda: process.poll() is None)
        watch = Watch(made.databases.server, made.broker.pid, [process.pid])
        own = looker.cpu_s()
        looker.wait_for(made.packages[count - 1][0].path, lambda: process.poll() is None)
        cost = watch.cost(count - 1, looker.cpu_s() - own)
        process.communicate(timeout=120)
    made.check(url, count)
    return cost


def run_loop(url: str, journal_url: str, topic: str, blobs_url: str, count: int) -> None:
    """What a user would write, with the product's own decoder."""
    blobs, journal = open_blobs(blobs_url), open_journal(journal_url, client_name="loop")
    with connect(url, "loop", autocommit=True) as connection:
        connection.execute("CREATE TABLE own_position (next bigint)")
        connection.execute("INSERT INTO own_position VALUES (0)")
        with journal.reader(topic, 0, partition=0) as reader:
            while count > 0:
                for record in reader.poll(1.0, max_records=count):
                    message = decode_package(record.headers, record.value)
                    with connection.transaction():
                        for node in unpack(message, blobs):
                            connection.execute(_UPSERT, (node.path, node.type, node.properties))
                        connection.execute("UPDATE own_position SET next = %s", (record.offset,))
                    count -= 1
        sys.stdin.read()  # the session's CPU is read before it ends


if __name__ == "__main__":
    run_loop(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
