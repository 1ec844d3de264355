"""What the chart's programs reach and are given: networks, autoscalers, images and secrets."""

import re
from typing import Any

import pytest

from tests.harness.deployment import ROOT, full_values, manifests, of_kind, pod_of, pods


def outward_ports(values: dict[str, Any]) -> set[int]:
    (policy,) = of_kind(manifests(values), "NetworkPolicy").values()
    open_to_all = [rule for rule in policy["spec"]["egress"] if "to" not in rule]
    return {port["port"] for rule in open_to_all for port in rule["ports"]} - {53}


def test_the_network_policy_lets_out_to_every_url_of_the_values() -> None:
    usual = {5432, 6432, 9092, 9093, 443}
    assert outward_ports({}) == usual
    minio = {"blobsUrl": "s3://content?endpoint=http://minio:9000&allow_http=true"}
    assert outward_ports(minio) == {*usual, 9000}
    tables = "s3://content/tables?region=x&endpoint=https://minio.example:9443"
    assert outward_ports({"pipeline": {"enabled": True, "tablesUrl": tables}}) == {*usual, 9443}
    connectors = {
        "topology": {"connectorUrls": ["http://other-topology", "https://far.example:8443"]}
    }
    assert outward_ports(connectors) == {*usual, 80, 8080, 8443}
    named = {"jobsUrls": {"a": "http://a:1001"}, "topologyUrls": {"a": "http://a:1002"}}
    console = {"console": {**named, "pipelineUrl": "http://a:1003"}}
    assert outward_ports(console) == {*usual, 1001, 1002, 1003, 8080}, "and that of their pods"
    bulk = {"enabled": True, "publisherUrl": "http://other-publisher"}
    assert outward_ports({"pipeline": bulk}) == {*usual, 80, 8080}
    keys = {"authentication": {"jwksUrl": "https://identity.example:8444/keys"}}
    assert outward_ports(keys) == {*usual, 8444}


def test_every_pod_is_labelled_and_placed_as_the_values_say() -> None:
    values = full_values()
    found = manifests({**values, "topicsJob": {"enabled": True}})
    templates = [
        document["spec"].get("jobTemplate", document)["spec"]["template"]
        for kind in ("Deployment", "CronJob", "Job")
        for document in of_kind(found, kind).values()
    ]
    assert len(templates) == len(list(pods(found)))
    for template in templates:
        for name in ("nodeSelector", "affinity", "tolerations"):
            assert template["spec"][name] == values[name]
        assert values["podLabels"].items() <= template["metadata"]["labels"].items()
        assert values["podAnnotations"].items() <= template["metadata"]["annotations"].items()


def test_the_programs_of_a_release_reach_each_other() -> None:
    documents = manifests()
    (policy,) = of_kind(documents, "NetworkPolicy").values()
    (among,) = [rule for rule in policy["spec"]["egress"] if "to" in rule]
    (peer,) = among["to"]
    selected = peer["podSelector"]["matchLabels"].items()
    for deployment in of_kind(documents, "Deployment").values():
        assert selected <= deployment["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("values", [{}, full_values()])
def test_what_the_topology_shows_announces_the_address_of_its_service(
    values: dict[str, Any],
) -> None:
    rendered = manifests(values)
    services = of_kind(rendered, "Service")
    for name, deployment in of_kind(rendered, "Deployment").items():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        reported = {e["name"]: e.get("value") for e in container["env"]}
        if not name.endswith(("-pipeline", "-console")):
            port = services[name]["spec"]["ports"][0]["port"]
            assert reported["PACKHORSE_ENDPOINT"] == f"http://{name}:{port}"


def test_prometheus_passes_the_network_policy_where_it_is_to_scrape() -> None:
    def sources(values: dict[str, Any]) -> list[Any]:
        (policy,) = of_kind(manifests(values), "NetworkPolicy").values()
        return [source for rule in policy["spec"]["ingress"] for source in rule["from"]]

    assert sources({}) == [{"podSelector": {}}]
    scraped = sources({"serviceMonitor": {"enabled": True}})
    by_operator = {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}
    assert scraped == [
        {"podSelector": {}},
        {"namespaceSelector": {}, "podSelector": by_operator},
    ]


def test_an_autoscaler_is_not_set_back_by_an_upgrade() -> None:
    documents = manifests(full_values())
    deployments = of_kind(documents, "Deployment")
    scalers = of_kind(documents, "HorizontalPodAutoscaler")
    assert scalers.keys() == {"content-distribution-publisher"}
    unset = {name for name, found in deployments.items() if "replicas" not in found["spec"]}
    assert unset == {"content-distribution-publisher", "content-distribution-content"}
    for name, scaler in scalers.items():
        target = scaler["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) == ("Deployment", name)
    assert all(d["spec"]["replicas"] >= 1 for d in of_kind(manifests(), "Deployment").values())
    assert of_kind(documents, "PodDisruptionBudget")


def test_bulk_has_a_publisher_and_a_token() -> None:
    def bulk(pipeline: dict[str, Any]) -> dict[str, Any]:
        tasks = {"bulk": {"enabled": True, "schedule": "@daily", "arguments": ["--deep", "/a"]}}
        documents = manifests({"pipeline": {"enabled": True, "tasks": tasks, **pipeline}})
        pod = pod_of(of_kind(documents, "CronJob")["release-packhorse-bulk"])
        assert pod is not None
        (container,) = pod["containers"]
        return {e["name"]: e.get("value") for e in container["env"]}

    (service,) = (
        f"http://{name}:{found['spec']['ports'][0]['port']}"
        for name, found in of_kind(manifests(), "Service").items()
        if name.endswith("-publisher")
    )
    reported = bulk({})
    assert reported["PACKHORSE_PUBLISHER_URL"] == service
    assert "PACKHORSE_PUBLISHER_TOKEN_FILE" in reported
    elsewhere = "https://publisher.example"
    assert bulk({"publisherUrl": elsewhere})["PACKHORSE_PUBLISHER_URL"] == elsewhere


def test_the_images_are_those_that_the_guide_builds() -> None:
    guide = (ROOT / "docs" / "deployment.md").read_text()
    built = set(re.findall(r"^docker build .*--tag (\S+)", guide, re.MULTILINE))
    documents = manifests({"pipeline": {"enabled": True}})
    wanted = {c["image"] for pod in pods(documents) for c in pod["containers"]}
    assert built == wanted


def test_a_subscriber_gets_no_secret_of_the_authors() -> None:
    documents = manifests()
    secrets: dict[bool, set[str]] = {True: set(), False: set()}
    for name, deployment in of_kind(documents, "Deployment").items():
        pod = pod_of(deployment)
        assert pod is not None
        (container,) = pod["containers"]
        named = {e["valueFrom"]["secretKeyRef"]["name"] for e in container["env"] if _is_secret(e)}
        volumes = [v["projected"]["sources"] for v in pod["volumes"] if "projected" in v]
        named |= {source["secret"]["name"] for sources in volumes for source in sources}
        secrets["-subscriber-" in name] |= named
        assert len(container["env"]) == len({e["name"] for e in container["env"]})
    assert secrets == {True: {"packhorse-sub1"}, False: {"packhorse"}}


def test_the_console_has_the_secret_of_its_sign_in_as_a_file() -> None:
    console = of_kind(manifests(full_values()), "Deployment")["content-distribution-console"]
    pod = pod_of(console)
    assert pod is not None
    (secrets,) = [volume for volume in pod["volumes"] if volume["name"] == "secrets"]
    (source,) = secrets["projected"]["sources"]
    path = "PACKHORSE_OIDC_CLIENT_SECRET_FILE"
    assert source["secret"] == {"name": "identity", "items": [{"key": "client", "path": path}]}


def _is_secret(variable: dict[str, Any]) -> bool:
    return "secretKeyRef" in variable.get("valueFrom", {})


def test_the_network_policy_lets_out_dns_and_what_is_listed() -> None:
    (policy,) = of_kind(manifests(full_values()), "NetworkPolicy").values()
    dns, *others = policy["spec"]["egress"]
    assert {(p["port"], p["protocol"]) for p in dns["ports"]} == {(53, "UDP"), (53, "TCP")}
    assert others == full_values()["networkPolicy"]["egress"]
