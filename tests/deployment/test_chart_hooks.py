"""The chart's jobs services that tell of changes at a subscriber."""

from tests.harness.deployment import full_values, manifests, of_kind


def test_hooks_of_a_subscriber_have_its_database_and_their_own_secret() -> None:
    deployments = of_kind(manifests(full_values()), "Deployment")
    [name] = [one for one in deployments if "-hooks-" in one]
    pod = deployments[name]["spec"]["template"]["spec"]
    [secrets] = [volume for volume in pod["volumes"] if volume["name"] == "secrets"]
    files = {
        item["path"]: source["secret"]["name"]
        for source in secrets["projected"]["sources"]
        for item in source["secret"]["items"]
    }
    assert files == {
        "PACKHORSE_TOKEN_FILE": "europe-tokens",
        "PACKHORSE_DATABASE_URL_FILE": "europe",
        "PACKHORSE_HOOKS_FILE": "europe",
    }
    assert not [one for one in pod["containers"][0]["env"] if one["name"].startswith("AWS_")]
