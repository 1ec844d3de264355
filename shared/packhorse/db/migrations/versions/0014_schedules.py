"""Tables of schedules."""

from alembic import op

revision = "0014"
down_revision = "0013"

STATEMENTS: tuple[str, ...] = (
    """
    CREATE TABLE jobs.schedule (
        name text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
        description text NOT NULL DEFAULT '',
        cron text,
        time_zone text,
        period interval,
        at timestamptz,
        action text NOT NULL CHECK (action IN ('JOB', 'EVENT')),
        topic text NOT NULL,
        properties jsonb NOT NULL CHECK (pg_column_size(properties) <= 524288),
        priority smallint NOT NULL,
        run_on text NOT NULL CHECK (run_on IN ('SINGLE', 'LEADER', 'ALL')),
        concurrent boolean NOT NULL,
        missed text NOT NULL CHECK (missed IN ('SKIP', 'ONCE', 'ALL')),
        missed_limit integer NOT NULL,
        not_before timestamptz,
        times integer,
        suspended boolean NOT NULL,
        origin text NOT NULL,
        changed boolean NOT NULL DEFAULT false,
        version bigint NOT NULL DEFAULT 1,
        next_tick timestamptz,
        last_tick timestamptz,
        times_left integer,
        planned_at timestamptz NOT NULL,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        CHECK (num_nonnulls(cron, period, at) = 1),
        CHECK ((cron IS NULL) = (time_zone IS NULL))
    )
    """,
    "CREATE INDEX schedule_due ON jobs.schedule (next_tick) "
    "WHERE NOT suspended AND next_tick IS NOT NULL",
    # For the few that were planned in what is the future after the clock went back.
    "CREATE INDEX schedule_planned ON jobs.schedule (planned_at)",
    # The key is what makes a moment fire once. It outlives the schedule, so that one that is
    # removed and made again does not fire a moment twice.
    """
    CREATE TABLE jobs.tick (
        schedule text COLLATE "C" NOT NULL,
        tick timestamptz NOT NULL,
        outcome text NOT NULL CHECK (outcome IN ('FIRED', 'SKIPPED', 'MISSED')),
        decided_at timestamptz NOT NULL,
        instance text NOT NULL,
        jobs bigint[] NOT NULL,
        missed integer NOT NULL,
        reason text NOT NULL,
        PRIMARY KEY (schedule, tick)
    )
    """,
    "CREATE INDEX tick_decided ON jobs.tick (decided_at)",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON jobs.schedule, jobs.tick TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
