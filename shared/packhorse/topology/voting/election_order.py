"""Which instance may do a leader task, by the established view."""

from dataclasses import dataclass

from psycopg import Connection


@dataclass(frozen=True, slots=True)
class VotingElectionOrder:
    """`ElectionOrder` by the order of the established view.

    A member that has died keeps its turn until a view without it is promoted: nobody is first
    meanwhile. So it is with one that was started again. One that has left passes its turn on.
    """

    instance_id: str
    runtime_id: str

    def is_first(self, connection: Connection, leader_task: str, *, keep: bool) -> bool:
        """See `ElectionOrder.is_first`; `keep` holds off the next view."""
        first = connection.execute(
            f"""
            SELECT m.instance_id, m.runtime_id
            FROM (SELECT members FROM topology.established_view {"FOR SHARE" if keep else ""}) v,
                jsonb_to_recordset(v.members) AS m
                    (instance_id text, runtime_id text, prefix text, started_ms bigint)
                JOIN topology.heartbeat h USING (instance_id)
            WHERE %s = ANY (
                string_to_array(replace(h.properties ->> 'packhorse.duties', ' ', ''), ','))
            ORDER BY (m.prefix || '_' || lpad(m.started_ms::text, 19, '0') || '_'
                || m.instance_id) COLLATE "C"
            LIMIT 1
            """,  # noqa: S608
            (leader_task,),
        ).fetchone()
        return first == (self.instance_id, self.runtime_id)
