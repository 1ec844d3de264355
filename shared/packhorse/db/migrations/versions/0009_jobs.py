"""Tables of jobs.

Unfinished jobs and finished ones are apart, so that a claim never meets history. A job's queue is
not in the job: its topic has one (`jobs.topic`), so that a changed queue moves all waiting jobs of
a topic with one row. Every index of waiting jobs holds only what may be begun now.
"""

from alembic import op

revision = "0009"
down_revision = "0008"

_UNFINISHED = """
    number bigint PRIMARY KEY,
    topic text COLLATE "C" NOT NULL,
    id text COLLATE "C",
    priority integer NOT NULL DEFAULT 0 CHECK (priority BETWEEN -100 AND 100),
    properties jsonb NOT NULL DEFAULT '{}',
    application text NOT NULL,
    created_at timestamptz NOT NULL,
    ready_at timestamptz NOT NULL,
    only_on text COLLATE "C" NOT NULL DEFAULT '',
    schedule text COLLATE "C",
    traceparent text,
    attempts integer NOT NULL DEFAULT 0,
    retry boolean NOT NULL DEFAULT false,
    instance text COLLATE "C" NOT NULL DEFAULT '',
    epoch bigint NOT NULL DEFAULT 0,
    started_at timestamptz,
    stop_requested boolean NOT NULL DEFAULT false,
    progress jsonb NOT NULL DEFAULT '{}',
    log text[] NOT NULL DEFAULT '{}',
    result_message text NOT NULL DEFAULT '',
    past_attempts jsonb NOT NULL DEFAULT '[]',
    extra jsonb NOT NULL DEFAULT '{}'
"""

STATEMENTS = (
    "CREATE SCHEMA jobs",
    "GRANT USAGE ON SCHEMA jobs TO packhorse_bookkeeper",
    """
    CREATE TABLE jobs.queue (
        name text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
        patterns text[] NOT NULL,
        ranking integer NOT NULL DEFAULT 0,
        type text NOT NULL DEFAULT 'ORDERED'
            CHECK (type IN ('ORDERED', 'UNORDERED', 'TOPIC_ROUND_ROBIN')),
        max_parallel integer NOT NULL DEFAULT -1 CHECK (max_parallel = -1 OR max_parallel > 0),
        max_retries integer NOT NULL DEFAULT 10 CHECK (max_retries >= -1),
        retry_delay_s double precision NOT NULL DEFAULT 2 CHECK (retry_delay_s >= 0),
        max_retry_delay_s double precision NOT NULL DEFAULT 3600 CHECK (max_retry_delay_s >= 0),
        timeout_s double precision CHECK (timeout_s > 0),
        keep_history boolean NOT NULL DEFAULT true,
        prefer_creator boolean NOT NULL DEFAULT false,
        suspended boolean NOT NULL DEFAULT false,
        version bigint NOT NULL DEFAULT 1,
        changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
    )
    """,
    """
    INSERT INTO jobs.queue (name, patterns, ranking, type)
    VALUES ('main', '{**}', -2147483648, 'UNORDERED')
    """,
    """
    CREATE TABLE jobs.topic (
        topic text COLLATE "C" PRIMARY KEY CHECK (octet_length(topic) BETWEEN 1 AND 255),
        queue text COLLATE "C" NOT NULL REFERENCES jobs.queue (name)
    )
    """,
    "CREATE INDEX topic_queue ON jobs.topic (queue)",
    """
    CREATE TABLE jobs.worker (
        runtime_id text COLLATE "C" PRIMARY KEY,
        instance text COLLATE "C" NOT NULL,
        lease_until timestamptz NOT NULL,
        started_at timestamptz NOT NULL DEFAULT clock_timestamp()
    ) WITH (fillfactor = 50)
    """,
    "CREATE SEQUENCE jobs.number",
    # `turn` is the number, until a job is made active again: then it is last once more.
    f"""
    CREATE TABLE jobs.job ({_UNFINISHED},
        max_retries integer CHECK (max_retries >= -1),
        state text NOT NULL DEFAULT 'QUEUED' CHECK (state IN ('QUEUED', 'ACTIVE')),
        delayed boolean NOT NULL DEFAULT false,
        turn bigint NOT NULL,
        open_at timestamptz,
        runtime_id text COLLATE "C" NOT NULL DEFAULT '',
        again jsonb
    ) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)
    """,
    "CREATE UNIQUE INDEX job_id ON jobs.job (topic, id) WHERE id IS NOT NULL",
    """
    CREATE INDEX job_waiting ON jobs.job (topic, only_on, priority DESC, turn)
    WHERE state = 'QUEUED' AND NOT delayed
    """,
    """
    CREATE INDEX job_in_order ON jobs.job (topic, turn)
    WHERE state = 'QUEUED' AND (NOT delayed OR attempts > 0)
    """,
    "CREATE INDEX job_delayed ON jobs.job (topic, ready_at) WHERE state = 'QUEUED' AND delayed",
    "CREATE INDEX job_reserved ON jobs.job (topic, open_at) "
    "WHERE state = 'QUEUED' AND open_at IS NOT NULL",
    "CREATE INDEX job_active ON jobs.job (topic, runtime_id) WHERE state = 'ACTIVE'",
    "CREATE INDEX job_schedule ON jobs.job (schedule) WHERE schedule IS NOT NULL",
    f"""
    CREATE TABLE jobs.finished ({_UNFINISHED},
        queue text COLLATE "C" NOT NULL,
        max_retries integer NOT NULL,
        own_max_retries integer,
        state text NOT NULL
            CHECK (state IN ('SUCCEEDED', 'STOPPED', 'GIVEN_UP', 'ERROR', 'DROPPED')),
        finished_at timestamptz NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX finished_id ON jobs.finished (topic, id) WHERE id IS NOT NULL",
    "CREATE INDEX finished_when ON jobs.finished (finished_at, number)",
    "CREATE INDEX finished_topic ON jobs.finished (topic, finished_at, number)",
    # What failed is what people look for, and rare.
    "CREATE INDEX finished_otherwise ON jobs.finished (finished_at, number) "
    "WHERE state <> 'SUCCEEDED'",
    """
    CREATE TABLE jobs.statistics (
        queue text COLLATE "C" NOT NULL,
        topic text COLLATE "C" NOT NULL,
        instance text COLLATE "C" NOT NULL,
        succeeded bigint NOT NULL DEFAULT 0,
        stopped bigint NOT NULL DEFAULT 0,
        given_up bigint NOT NULL DEFAULT 0,
        errors bigint NOT NULL DEFAULT 0,
        dropped bigint NOT NULL DEFAULT 0,
        failed_attempts bigint NOT NULL DEFAULT 0,
        attempts bigint NOT NULL DEFAULT 0,
        waiting_s double precision NOT NULL DEFAULT 0,
        processing_s double precision NOT NULL DEFAULT 0,
        since timestamptz NOT NULL DEFAULT clock_timestamp(),
        last_started_at timestamptz,
        last_finished_at timestamptz,
        PRIMARY KEY (queue, topic, instance)
    ) WITH (fillfactor = 50)
    """,
    # What the jobs service knows of requests that were sent twice.
    """
    CREATE TABLE jobs.request_key (
        caller text COLLATE "C" NOT NULL,
        key text COLLATE "C" NOT NULL,
        fingerprint bytea NOT NULL,
        number bigint,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (caller, key)
    )
    """,
    "CREATE INDEX request_key_age ON jobs.request_key (created_at)",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON jobs.queue, jobs.topic, jobs.worker, jobs.job, "
    "jobs.finished, jobs.statistics, jobs.request_key TO packhorse_bookkeeper",
    "GRANT USAGE ON SEQUENCE jobs.number TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
