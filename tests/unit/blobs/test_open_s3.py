"""S3 URLs: what they may say, before any bucket is asked."""

import pytest

from packhorse.blobs.api import InvalidBlobsUrl
from packhorse.blobs.open import open_blobs


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket",
        "s3://bucket/a/prefix",
        "s3://bucket?region=eu-central-1",
        "s3://bucket?endpoint=https://s3.example",
        "s3://bucket?endpoint=http://127.0.0.1:1&allow_http=true",
    ],
)
def test_a_store_opens_without_asking_its_server(url: str) -> None:
    open_blobs(url).close()


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3://u:p@bucket", "s3://bucket?endpoint=http://127.0.0.1:1", "s3://bucket?what=1"],
)
def test_a_url_that_leads_elsewhere_is_refused(url: str) -> None:
    with pytest.raises(InvalidBlobsUrl):
        open_blobs(url)


@pytest.mark.parametrize("user", ["u:secret@", "secret@", "u:/secret@", "u:secret%40"])
def test_a_user_in_the_endpoint_is_refused_and_not_quoted(user: str) -> None:
    with pytest.raises(InvalidBlobsUrl, match="credentials come from the environment") as refused:
        open_blobs(f"s3://bucket?endpoint=http://{user}127.0.0.1:1&allow_http=true")
    assert "secret" not in str(refused.value)
