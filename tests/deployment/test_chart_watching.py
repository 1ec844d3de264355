"""What the chart gives to those who watch: Prometheus, and whoever looks at a task that failed."""

import re
from pathlib import Path

from tests.harness.deployment import full_values, manifests, of_kind, pod_of

_WATCHING = Path(__file__).parents[2] / "docs" / "operations" / "watching.md"
_NEVER_AGAIN = {"audit": [1, 2], "run": [2]}
"""Exit codes; an audit that could not compare all, as while a server is away, ends with 3."""


def test_the_documented_alerts_name_the_job_that_prometheus_gives_the_programs() -> None:
    rendered = manifests(full_values())
    [monitor] = of_kind(rendered, "ServiceMonitor").values()
    label = monitor["spec"]["jobLabel"]
    jobs = {one["metadata"]["labels"][label] for one in of_kind(rendered, "Service").values()}
    assert set(re.findall(r'up\{job="([^"]+)"\}', _WATCHING.read_text())) == jobs


def test_a_task_is_not_run_again_that_would_only_fail_again() -> None:
    tasks = {"run": {"enabled": True}}
    rendered = manifests({"pipeline": {"enabled": True, "tasks": tasks}})
    for name, job in of_kind(rendered, "CronJob").items():
        spec = job["spec"]["jobTemplate"]["spec"]
        assert spec["ttlSecondsAfterFinished"] == 86_400, "as long as an alert of it stays"
        [rule] = spec["podFailurePolicy"]["rules"]
        pod = pod_of(job)
        assert pod is not None
        assert pod["restartPolicy"] == "Never"
        failing = _NEVER_AGAIN.get(name.rpartition("-")[2], [2, 3, 4])
        assert rule == {
            "action": "FailJob",
            "onExitCodes": {
                "containerName": pod["containers"][0]["name"],
                "operator": "In",
                "values": failing,
            },
        }
