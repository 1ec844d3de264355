"""Which instance may do a leader task, by the leases."""

from dataclasses import dataclass

from psycopg import Connection


@dataclass(frozen=True, slots=True)
class LeaseElectionOrder:
    """`ElectionOrder` by the stored order of the active instances.

    An instance whose lease has run out keeps its turn until another one retires it, and a
    deactivating one until its backlog is settled: nobody is first meanwhile.
    """

    instance_id: str
    runtime_id: str

    def is_first(self, connection: Connection, leader_task: str, *, keep: bool) -> bool:
        """See `ElectionOrder.is_first`; false when the own lease has run out."""
        own = connection.execute(
            f"""
            SELECT joined FROM topology.instance WHERE id = %s AND runtime_id = %s
            AND state = 'ACTIVE' AND lease_end > clock_timestamp() {"FOR SHARE" if keep else ""}
            """,  # noqa: S608
            (self.instance_id, self.runtime_id),
        ).fetchone()
        if own is None:
            return False
        first = connection.execute(
            """
            SELECT min(joined) FROM topology.instance WHERE state <> 'INACTIVE' AND %s = ANY (
                string_to_array(replace(properties ->> 'packhorse.duties', ' ', ''), ','))
            """,
            (leader_task,),
        ).fetchone()
        return first == own
