"""What the routes of the jobs service ask; made once, found through the app."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from fastapi import Request
from psycopg import Connection

from packhorse.bookkeeping.audit_rows import write_act
from packhorse.db.pool import Lender
from packhorse.db.transactions import writing
from packhorse.jobs.jobs import Jobs
from packhorse.topology.discovery import Discovery
from packhorse_services.jobs.http.event_feed import JobEventHub

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class JobsServices:
    """The database of the cluster, and the view of who is alive in it."""

    pool: Lender
    jobs: Jobs
    hub: JobEventHub
    discovery: Discovery

    async def ask(self, question: Callable[[Connection], Result], *, act: bool = True) -> Result:
        """Run a question in a thread, as the bookkeeper, in one transaction that then commits.

        Of a request that changes something the transaction says who sent it; not without `act`,
        which is for what programs send all the time.
        """
        return await asyncio.to_thread(self._ask, question, act)

    def _ask(self, question: Callable[[Connection], Result], act: bool) -> Result:
        with writing(self.pool.connection) as connection:
            answer = question(connection)
            if act:
                write_act(connection)
            return answer


def of(request: Request) -> JobsServices:
    """Return the parts of the service that answers."""
    parts: JobsServices = request.app.state.parts
    return parts
