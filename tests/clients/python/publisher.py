"""The main calls with the client that is generated from openapi/publisher.yaml.

Prints one line of JSON. It runs in the generator's environment, without packhorse.
"""

import json
import sys

from packhorse_client import AuthenticatedClient
from packhorse_client.api.commands import clear_queue
from packhorse_client.api.distributions import distribute
from packhorse_client.api.queues import list_queues
from packhorse_client.models import (
    ClearAccepted,
    ClearBody,
    DistributeBody,
    DistributeBodyAction,
    DistributionAccepted,
    ProblemDocument,
    QueueList,
)


def main(server: str, token: str, path: str, subscriber: str) -> None:
    with AuthenticatedClient(base_url=server, token=token) as client:
        body = DistributeBody(action=DistributeBodyAction.ADD, paths=[path])
        accepted = distribute.sync(client=client, body=body, prefer="wait=60")
        assert isinstance(accepted, DistributionAccepted), accepted
        queues = list_queues.sync(client=client)
        assert isinstance(queues, QueueList), queues
        assert isinstance(accepted.offset, int), accepted
        bound = ClearBody(up_to_offset=accepted.offset)
        cleared = clear_queue.sync(subscriber, client=client, body=bound)
        assert isinstance(cleared, ClearAccepted), cleared
        body.paths = ["/no/such/page"]
        refused = distribute.sync(client=client, body=body)
        assert isinstance(refused, ProblemDocument), refused
    answer = {
        "package_id": accepted.package_id,
        "queues": [queue.subscriber for queue in queues.queues],
        "command_id": cleared.command_id,
        "state": accepted.state.value,
        "up_to_offset": cleared.up_to_offset - accepted.offset,
        "refused": refused.status,
    }
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
