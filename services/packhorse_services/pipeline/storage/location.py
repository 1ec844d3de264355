"""Where the tables are: a folder or an S3 prefix, as Spark, delta-rs and the blob store name it."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from packhorse_services.pipeline.errors import TablesUnusable, TaskFailed

_OPTIONS = frozenset({"endpoint", "region", "allow_http"})
_ANSWER = "120s"
"""How long delta-rs waits for S3. What it asks again after that may have been done before."""

_PASSES = re.compile(r"after \d+ retries|No space left")
"""In what delta-rs says: S3 is away, which it has asked in vain for a while, or a disk is full."""
_CREDENTIALS = re.compile(r"/latest/(?:api/token|meta-data)|://169\.254\.")
"""Where it asks a cloud's machine for credentials, which the environment has not given it."""
_LINES = re.compile(r"(?:\s|\x1b\[\d+m|↳)+")
"""What stands between the parts of what it says."""
_MAX_TEXT = 400


def said_by(error: Exception) -> str:
    """Return what delta-rs says, in one line."""
    return _LINES.sub(" ", str(error)).strip()


def store_error(what: str, error: Exception) -> TablesUnusable | TaskFailed:
    """Return the error, in one line, for what delta-rs can't do: `TaskFailed` where that may pass.

    `what` says which tables it can't use.
    """
    said = said_by(error)
    reported = f"{what}: {said[:_MAX_TEXT]}"
    hint = "check PACKHORSE_TABLES_URL, and the credentials when it is on S3"
    if _PASSES.search(said) and not _CREDENTIALS.search(said):
        return TaskFailed(f"{reported}; run it again, and if that fails too, {hint}")
    return TablesUnusable(f"{reported}; {hint}")


@dataclass(frozen=True, slots=True)
class Location:
    """A place for tables. `base` is a folder, or `bucket/prefix` when `options` say S3."""

    base: str
    is_s3: bool = False
    endpoint: str = ""
    region: str = "us-east-1"
    allow_http: bool = False

    @classmethod
    def parse(cls, url: str, *, only_read: bool = False) -> "Location":
        """Return what `url` names; a folder that is not there is created, to be written.

        With `only_read` nothing is created, and nothing is asked of the folder. Raises
        `TablesUnusable`.
        """
        parsed = urlsplit(url)
        if not url:
            raise TablesUnusable("there is no place for tables; set PACKHORSE_TABLES_URL")
        if parsed.scheme == "s3":
            return cls._s3(parsed.netloc, parsed.path, dict(parse_qsl(parsed.query)))
        if parsed.scheme not in ("", "file") or parsed.netloc not in ("", "localhost"):
            raise TablesUnusable(
                f"{parsed.scheme}://… is no place for tables; use a folder or s3://bucket/prefix"
            )
        found = cls(str(Path(unquote(parsed.path) if parsed.scheme else url).absolute()))
        if not only_read:
            found._create()
            found.require_writable()
        return found

    @classmethod
    def _s3(cls, bucket: str, prefix: str, options: dict[str, str]) -> "Location":
        if unknown := sorted(set(options) - _OPTIONS):
            raise TablesUnusable(
                f"PACKHORSE_TABLES_URL has the unknown option {unknown[0]!r}; "
                f"known are {', '.join(sorted(_OPTIONS))}"
            )
        if "%" in prefix:
            raise TablesUnusable("PACKHORSE_TABLES_URL has a % in its prefix; name it without")
        if not bucket:
            raise TablesUnusable("PACKHORSE_TABLES_URL names no bucket; use s3://bucket/prefix")
        return cls(
            "/".join(part for part in (bucket, prefix.strip("/")) if part),
            is_s3=True,
            endpoint=options.get("endpoint", ""),
            region=options.get("region", "us-east-1"),
            allow_http=options.get("allow_http", "false") == "true",
        )

    def _create(self) -> None:
        try:
            Path(self.base).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TablesUnusable(f"{self.base} can't hold the tables: {error.strerror}") from error

    def is_there(self) -> bool:
        """Return whether the folder is there; of S3, where nobody makes any, it always is."""
        return self.is_s3 or Path(self.base).is_dir()

    def require_writable(self) -> None:
        """Raise `TablesUnusable` for a folder that can't be written; S3 fails at a write."""
        if not self.is_s3 and not os.access(self.base, os.W_OK):
            raise TablesUnusable(
                f"{self.base} can't be written; choose another PACKHORSE_TABLES_URL"
            )

    @property
    def shown(self) -> str:
        """The place as a person names it."""
        return f"s3://{self.base}" if self.is_s3 else self.base

    def spark_path(self, name: str) -> str:
        """Return where Spark finds `name`, a table's or a checkpoint's."""
        return f"s3a://{self.base}/{name}" if self.is_s3 else f"{self.base}/{name}"

    def delta_uri(self, name: str) -> str:
        """Return where delta-rs finds the table `name`."""
        return f"s3://{self.base}/{name}" if self.is_s3 else f"{self.base}/{name}"

    def delta_options(self) -> dict[str, str]:
        """Return delta-rs' storage options; credentials come from the environment."""
        if not self.is_s3:
            return {}
        options = {"region": self.region, "allow_http": str(self.allow_http).lower()}
        options["timeout"] = _ANSWER
        return {**options, "endpoint": self.endpoint} if self.endpoint else options

    def blobs_url(self, name: str) -> str:
        """Return the URL of a blob store beside the tables."""
        if not self.is_s3:
            return f"{self.base}/{name}"
        options = {"region": self.region, "allow_http": str(self.allow_http).lower()}
        if self.endpoint:
            options["endpoint"] = self.endpoint
        return f"s3://{self.base}/{name}?{urlencode(options)}"

    def hadoop_conf(self) -> dict[str, str]:
        """Return Spark's settings for the place; credentials come as the AWS tools take them."""
        if not self.is_s3:
            return {}
        conf = {
            "spark.hadoop.fs.s3a.endpoint.region": self.region,
            "spark.hadoop.fs.s3a.connection.ssl.enabled": str(not self.allow_http).lower(),
            "spark.hadoop.fs.s3a.path.style.access": "true",
            # Both need by default a library that nothing else here does.
            "spark.hadoop.fs.s3a.input.stream.type": "classic",
            "spark.hadoop.fs.s3a.audit.enabled": "false",
        }
        if self.endpoint:
            conf["spark.hadoop.fs.s3a.endpoint"] = self.endpoint
        return conf
