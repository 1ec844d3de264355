"""A commit that keeps nobody else's: what a table on S3 has without conditional puts."""

import json
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable
from deltalake.transaction import AddAction

from packhorse_services.pipeline.storage import arrow_files
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.table_files import Kept


def commit_blindly(
    location: Location, held: DeltaTable, removed: Iterable[Kept], added: Iterable[AddAction]
) -> None:
    """Write the version after the one that was read, over whatever may be there by now."""
    gone = [{"path": one.path, "dataChange": True, "deletionTimestamp": 1} for one in removed]
    new = [
        {
            "path": one.path,
            "partitionValues": dict(one.partition_values),
            "size": one.size,
            "modificationTime": 1,
            "dataChange": True,
        }
        for one in added
    ]
    lines = [{"remove": one} for one in gone] + [{"add": one} for one in new]
    log = f"{_path_of(held.table_uri).rstrip('/')}/_delta_log"
    with arrow_files.filesystem(location).open_output_stream(
        f"{log}/{held.version() + 1:020}.json"
    ) as written:
        written.write("\n".join(map(json.dumps, lines)).encode())


def _path_of(uri: str) -> str:
    """Return where Arrow finds what is named by its URI."""
    parsed = urlsplit(uri)
    bucket = f"{parsed.netloc}" if parsed.scheme in ("s3", "s3a") else ""
    return bucket + unquote(parsed.path)
