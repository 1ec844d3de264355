"""What the chart gives to those who watch: Prometheus, and whoever looks at a task that failed."""

import re
from pathlib import Path

from tests.harness.deployment import full_values, manifests, of_kind, pod_of

_WATCHING = Path(__file__).parents[2] / "docs" / "operations" / "watching.md"


def test_the_documented_alerts_name_the_job_that_prometheus_gives_the_programs() -> None:
    rendered = manifests(full_values())
    [monitor] = of_kind(rendered, "ServiceMonitor").values()
    label = monitor["spec"]["jobLabel"]
    jobs = {one["metadata"]["labels"][label] for one in of_kind(rendered, "Service").values()}
    assert set(re.findall(r'up\{job="([^"]+)"\}', _WATCHING.read_text())) == jobs


def test_a_task_is_not_run_again_that_would_only_fail_again() -> None:
    rendered = manifests({"pipeline": {"enabled": True}})
    for name, job in of_kind(rendered, "CronJob").items():
        [rule] = job["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
        pod = pod_of(job)
        assert pod is not None
        assert pod["restartPolicy"] == "Never"
        failing = {1, 2, 3, 4} if name.endswith("-audit") else {2, 3, 4}
        assert rule == {
            "action": "FailJob",
            "onExitCodes": {
                "containerName": pod["containers"][0]["name"],
                "operator": "In",
                "values": sorted(failing),
            },
        }
