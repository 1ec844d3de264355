"""The place of the tables as Arrow opens it, in tasks that read and write files themselves."""

from urllib.parse import urlsplit

from pyarrow import fs

from packhorse_services.pipeline.storage.location import Location

_CONNECT_S, _ANSWER_S = 10.0, 60.0
"""Arrow's own are 1 s and 3 s: three tries would be over before a busy server has answered."""


def filesystem(location: Location) -> fs.FileSystem:
    """Return what opens files there; S3's credentials come from the environment, as for delta-rs.

    Local files are not mapped into memory: what is read counts for this process alone.
    """
    if not location.is_s3:
        return fs.LocalFileSystem(use_mmap=False)
    endpoint = urlsplit(location.endpoint)
    return fs.S3FileSystem(
        region=location.region,
        scheme=endpoint.scheme or "https",
        endpoint_override=endpoint.netloc or None,
        connect_timeout=_CONNECT_S,
        request_timeout=_ANSWER_S,
    )


def names(location: Location, folder: str) -> list[str]:
    """Return what there is in a folder, by name; nothing where it is not there."""
    selected = fs.FileSelector(path(location, folder), allow_not_found=True)
    return [info.base_name for info in filesystem(location).get_file_info(selected)]


def path(location: Location, name: str) -> str:
    """Return where that finds `name`, a file in a table."""
    return f"{location.base}/{name}"
