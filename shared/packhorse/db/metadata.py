"""The one table catalogue, and the schemas and roles that it is divided among."""

from sqlalchemy import MetaData

METADATA = MetaData()
"""Every `tables.py` of packhorse registers here; the migrations are written from it."""

CONTENT = "content"
"""Schema of the nodes: read by the exporter, written by the importer and the content API."""

BOOKKEEPING = "bookkeeping"
"""Schema of offsets, statuses, outbox and stored packages: the bookkeeper's (R23)."""

JOURNAL = "journal"
"""Schema of the SQL journal."""

TOPOLOGY = "topology"
"""Schema of instances, leader tasks, votings and announcements: the bookkeeper's."""

JOBS = "jobs"
"""Schema of events, jobs, their queues and history, and schedules: the bookkeeper's."""

EXPORTER = "packhorse_exporter"
IMPORTER = "packhorse_importer"
BOOKKEEPER = "packhorse_bookkeeper"
