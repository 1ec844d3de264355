"""Adds, finds, stops and retries a job with the client that is generated from openapi/jobs.yaml.

Prints one line of JSON. It runs in the generator's environment, without packhorse.
"""

import json
import sys

from packhorse_client import AuthenticatedClient
from packhorse_client.api.jobs import add_job, get_job, list_jobs, retry_job, stop_job
from packhorse_client.api.schedules import put_schedule
from packhorse_client.models import (
    AddedDocument,
    JobDocument,
    JobList,
    JobRequest,
    JobRequestProperties,
    ProblemDocument,
    ScheduleBody,
    ScheduleDocument,
)


def main(server: str, token: str, topic: str) -> None:
    with AuthenticatedClient(base_url=server, token=token) as client:
        properties = JobRequestProperties.from_dict({"size": 3})
        body = JobRequest(topic=topic, properties=properties)
        added = add_job.sync(client=client, body=body, idempotency_key="once")
        assert isinstance(added, AddedDocument), added
        again = add_job.sync(client=client, body=body, idempotency_key="once")
        assert isinstance(again, AddedDocument), again
        number = added.job.number
        found = list_jobs.sync(client=client, topic=topic, template=['{">=size": 3}'])
        assert isinstance(found, JobList), found
        stopped = stop_job.sync(number, client=client)
        assert isinstance(stopped, JobDocument), stopped
        retried = retry_job.sync(number, client=client)
        assert isinstance(retried, JobDocument), retried
        seen = get_job.sync(number, client=client)
        assert isinstance(seen, JobDocument), seen
        schedule = put_schedule.sync(
            "nightly", client=client, body=ScheduleBody(topic=topic, cron="30 2 * * *")
        )
        assert isinstance(schedule, ScheduleDocument), schedule
        refused = put_schedule.sync(
            "never", client=client, body=ScheduleBody(topic=topic, cron="0 0 31 2 *")
        )
        assert isinstance(refused, ProblemDocument), refused
    answer = {
        "number": number,
        "again": again.job.number,
        "found": [job.number for job in found.jobs],
        "states": [stopped.state.value, retried.state.value, seen.state.value],
        "size": seen.properties["size"],
        "schedule": schedule.cron,
        "refused": refused.status,
    }
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
