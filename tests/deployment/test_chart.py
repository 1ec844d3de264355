"""The Helm chart: linted, rendered and held against the Kubernetes schemas, without a cluster."""

import shlex
from typing import Any

import kubernetes_validate
import pytest
import typer
from helm_python import Chart, HelmError, lint

from packhorse_services.pipeline.program import program
from tests.harness.deployment import CHART, full_values, manifests, of_kind, pod_of, pods

OLDEST, NEWEST = "1.30", kubernetes_validate.latest_version()
FOREIGN_KINDS = {"ServiceMonitor"}  # of the Prometheus operator, unknown to Kubernetes itself
VALUES: dict[str, dict[str, Any] | None] = {"default": None, "full": full_values()}

PIPELINE: Any = typer.main.get_command(program())
TASKS = PIPELINE.commands

Manifest = dict[str, Any]


@pytest.fixture(scope="module", params=VALUES)
def rendered(request: pytest.FixtureRequest) -> list[Manifest]:
    return manifests(VALUES[request.param])


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_strict_lint_finds_nothing(values: dict[str, Any] | None) -> None:
    report = lint(CHART, values, strict=True)
    worse_than_info = [m for m in report["messages"] if m["severity"] > 1]
    assert (report["errors"], worse_than_info) == ([], [])


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_manifests_are_what_kubernetes_takes(rendered: list[Manifest], version: str) -> None:
    for document in rendered:
        if document["kind"] not in FOREIGN_KINDS:
            kubernetes_validate.validate(document, version, strict=True)


def test_the_full_values_name_every_value_of_the_chart() -> None:
    with Chart.load(CHART) as chart:
        assert paths(chart.values) <= paths(full_values())


def test_names_are_unique_and_fit(rendered: list[Manifest]) -> None:
    names = [(d["kind"], d["metadata"]["name"]) for d in rendered]
    assert len(names) == len(set(names))
    assert all(len(name) <= 63 for _, name in names)


def test_services_and_budgets_select_exactly_the_pods_they_mean(rendered: list[Manifest]) -> None:
    deployments = of_kind(rendered, "Deployment")
    for name, service in of_kind(rendered, "Service").items():
        wanted = service["spec"]["selector"].items()
        selected = [
            n
            for n, d in deployments.items()
            if wanted <= d["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert selected == [name]
    for name, deployment in deployments.items():
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items(), name


def test_only_the_publisher_has_a_disruption_budget(rendered: list[Manifest]) -> None:
    (budget,) = of_kind(rendered, "PodDisruptionBudget").values()
    assert budget["metadata"]["name"].endswith("-publisher")


def test_one_publisher_has_no_budget_that_would_block_every_drain() -> None:
    assert not of_kind(manifests({"publisher": {"replicas": 1}}), "PodDisruptionBudget")


def test_r11_a_subscriber_is_one_worker_that_ends_before_the_next_starts(
    rendered: list[Manifest],
) -> None:
    workers = [
        d["spec"]
        for d in of_kind(rendered, "Deployment").values()
        if d["metadata"]["labels"]["app.kubernetes.io/component"] == "subscriber"
    ]
    assert workers
    assert {(w["replicas"], w["strategy"]["type"]) for w in workers} == {(1, "Recreate")}


def test_every_pod_runs_without_rights(rendered: list[Manifest]) -> None:
    for pod in pods(rendered):
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"]


def test_every_pod_may_write_below_tmp_only(rendered: list[Manifest]) -> None:
    for pod in pods(rendered):
        emptied = {v["name"] for v in pod["volumes"] if "emptyDir" in v}
        for container in pod["containers"]:
            writable = [m for m in container["volumeMounts"] if not m.get("readOnly")]
            assert [(m["name"] in emptied, m["mountPath"]) for m in writable] == [(True, "/tmp")]


def test_every_mount_has_its_volume(rendered: list[Manifest]) -> None:
    for pod in pods(rendered):
        volumes = {v["name"] for v in pod["volumes"]}
        mounts = {m["name"] for c in pod["containers"] for m in c["volumeMounts"]}
        assert mounts == volumes


def test_every_program_has_all_three_probes(rendered: list[Manifest]) -> None:
    for deployment in of_kind(rendered, "Deployment").values():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        requested = {
            name: container[f"{name}Probe"]["httpGet"]["path"]
            for name in ("startup", "liveness", "readiness")
        }
        assert requested == {"startup": "/startupz", "liveness": "/livez", "readiness": "/readyz"}


def test_what_is_replaced_while_it_serves_waits_for_the_last_requests(
    rendered: list[Manifest],
) -> None:
    for deployment in of_kind(rendered, "Deployment").values():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        rolling = deployment["spec"]["strategy"]["type"] == "RollingUpdate"
        assert rolling == ("preStop" in container.get("lifecycle", {}))


def test_every_secret_is_a_file_of_a_secret_that_exists_already(rendered: list[Manifest]) -> None:
    assert not of_kind(rendered, "Secret")
    for pod in pods(rendered):
        projected = (v["projected"] for v in pod["volumes"] if v["name"] == "secrets")
        files = {
            f"/run/secrets/packhorse/{item['path']}"
            for volume in projected
            for source in volume["sources"]
            for item in source["secret"]["items"]
        }
        for container in pod["containers"]:
            reported = {e["value"] for e in container["env"] if e["name"].endswith("_FILE")}
            assert reported == files


def test_a_program_gets_only_its_own_database(rendered: list[Manifest]) -> None:
    authors = {"publisher", "content", "cleanup", "topology", "jobs", "pipeline-worker"}
    seen: dict[str, str] = {}
    for name, deployment in of_kind(rendered, "Deployment").items():
        volumes = deployment["spec"]["template"]["spec"]["volumes"]
        secrets = [
            f"{s['secret']['name']}/{s['secret']['items'][0]['key']}"
            for volume in volumes
            for s in volume.get("projected", {"sources": ()})["sources"]
            if s["secret"]["items"][0]["path"] == "PACKHORSE_DATABASE_URL_FILE"
        ]
        if name.endswith(("-pipeline", "-console")):  # one reads tables, one asks others
            assert not secrets
            continue
        (secret,) = secrets
        component = deployment["metadata"]["labels"]["app.kubernetes.io/component"]
        # A subscriber's hooks are jobs in its own database.
        owner = name.replace("-hooks-", "-subscriber-")
        assert seen.setdefault("author" if component in authors else owner, secret) == secret
    assert len(set(seen.values())) == len(seen)


def test_the_topics_job_needs_nothing_that_is_not_there_yet() -> None:
    (job,) = of_kind(manifests(), "Job").values()
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    pod = job["spec"]["template"]["spec"]
    assert "serviceAccountName" not in pod
    assert "envFrom" not in pod["containers"][0]


def test_the_topics_job_has_the_names_of_the_programs() -> None:
    rendered = manifests({"topics": {"status": "said"}})
    (job,) = of_kind(rendered, "Job").values()
    (shared,) = of_kind(rendered, "ConfigMap").values()
    [container] = job["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one.get("value") for one in container["env"]}
    named = {name: given[name] for name in given if name.startswith("PACKHORSE_TOPIC_")}
    assert named == {"PACKHORSE_TOPIC_PREFIX": "aemdistribution", "PACKHORSE_TOPIC_STATUS": "said"}
    assert named.items() <= shared["data"].items()


def test_prometheus_presents_a_token_because_metrics_need_one() -> None:
    assert not of_kind(manifests(), "ServiceMonitor")
    (monitor,) = of_kind(manifests(full_values()), "ServiceMonitor").values()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["path"] == "/metrics"
    assert endpoint["authorization"]["credentials"] == {"name": "prometheus", "key": "token"}


def test_one_task_of_a_kind_runs_at_a_time_and_is_one_that_the_program_has() -> None:
    assert not of_kind(manifests(), "CronJob")
    assert len(of_kind(manifests(full_values()), "CronJob")) == 7  # the audit is off
    jobs = of_kind(manifests({"pipeline": {"enabled": True}}), "CronJob")
    assert len(jobs) == 5
    for job in (*jobs.values(), *of_kind(manifests(full_values()), "CronJob").values()):
        assert job["spec"]["concurrencyPolicy"] == "Forbid"
        pod = pod_of(job)
        assert pod is not None
        program, task, *arguments = pod["containers"][0]["command"]
        assert program == "packhorse-pipeline"
        within = map(shlex.split, arguments) if task == "run" else ()
        commands = [[task, *arguments], *within]
        for name, *options in commands:
            TASKS[name].make_context(name, options)  # which refuses what it doesn't take
        given = {one["name"] for one in pod["containers"][0]["env"]}
        audits = any(name in ("audit", "mark") for name, *_ in commands)
        assert audits == ("PACKHORSE_SUBSCRIBER_DATABASES_FILE" in given)


def test_the_worker_of_the_pipeline_is_off_unless_asked_for() -> None:
    off = manifests({"pipeline": {"enabled": True}})
    assert not [name for name in of_kind(off, "Deployment") if "worker" in name]
    on = manifests({"pipeline": {"enabled": True, "worker": {"enabled": True}}})
    worker = of_kind(on, "Deployment")["release-packhorse-pipeline-worker"]
    pod = pod_of(worker)
    assert pod is not None
    assert pod["containers"][0]["command"] == ["packhorse-pipeline", "worker"]
    assert pod["volumes"][0]["emptyDir"] == {"sizeLimit": "10Gi"}  # Spark spills there


WRONG: dict[str, dict[str, Any]] = {
    "a misspelt key": {"publisher": {"replica": 3}},
    "an unknown section": {"subscribres": []},
    "a subscriber without a database": {"subscribers": [{"name": "sub1"}]},
    "a subscriber name that is no DNS label": {
        "subscribers": [{"name": "Sub_1", "databaseUrl": {"name": "a", "key": "b"}}]
    },
    "a secret without a key": {"secrets": {"journalUrl": {"name": "a", "key": ""}}},
    "a URL where the secret's name belongs": {"secrets": {"journalUrl": "kafka://broker"}},
    "a text for a number": {"publisher": {"replicas": "two"}},
    "fewer retries than none": {
        "subscribers": [{"name": "a", "databaseUrl": {"name": "a", "key": "b"}, "maxRetries": -2}]
    },
    "a start that is none": {
        "subscribers": [
            {"name": "a", "databaseUrl": {"name": "a", "key": "b"}, "start": "yesterday"}
        ]
    },
    "a log level that does not exist": {"log": {"level": "LOUD"}},
    "a variable that no program reads": {"publisher": {"env": {"PATH": "/tmp"}}},
    "keys over plain HTTP": {"authentication": {"jwksUrl": "http://identity.example/keys"}},
    "a task that there is not": {
        "pipeline": {"tasks": {"guess": {"enabled": True, "schedule": "@daily", "arguments": []}}}
    },
    "a schedule that is none": {
        "pipeline": {"tasks": {"audit": {"enabled": True, "schedule": "daily", "arguments": []}}}
    },
    "tables in a container's folder": {"pipeline": {"tablesUrl": "/tables"}},
    "a topic prefix that Kafka refuses": {"topicPrefix": "a b"},
}


@pytest.mark.parametrize("values", WRONG.values(), ids=WRONG)
def test_the_schema_refuses(values: dict[str, Any]) -> None:
    with Chart.load(CHART) as chart, pytest.raises(HelmError):
        chart.validate_schema(values)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_schema_takes_what_the_tests_render(values: dict[str, Any] | None) -> None:
    with Chart.load(CHART) as chart:
        chart.validate_schema(values)


def test_two_subscribers_of_one_name_are_refused() -> None:
    twice = {"name": "sub1", "databaseUrl": {"name": "a", "key": "b"}}
    with pytest.raises(HelmError, match="sub1"):
        manifests({"subscribers": [twice, twice]})


def paths(values: dict[str, Any]) -> set[tuple[str, ...]]:
    """Return the paths of all keys of `values`; what free-form sections hold doesn't count."""
    found: set[tuple[str, ...]] = set()
    for key, value in values.items():
        found.add((key,))
        if isinstance(value, dict) and key not in ("env", "resources"):
            found |= {(key, *rest) for rest in paths(value)}
    return found
