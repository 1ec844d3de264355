"""The AsyncAPI document as a page: what is sent where, and what a message holds."""

from collections.abc import Mapping
from typing import Any

from docs.site.schemas import described, kind, plain

NAME = "events"


def event_page(document: Mapping[str, Any]) -> str:
    """Return the page of what a publisher reports, and of what hooks tell."""
    info, components = document["info"], document["components"]
    lines = [
        "# Events on the journal, and messages of hooks",
        "",
        plain(info["description"]),
        "",
        "## Channels",
        "",
    ]
    for channel in document["channels"].values():
        lines += [f"### `{channel['address']}`", "", plain(channel.get("description", "")), ""]
        for name, parameter in channel.get("parameters", {}).items():
            default = f" (default `{parameter['default']}`)" if "default" in parameter else ""
            lines += [f"- `{name}`: {plain(parameter.get('description', ''))}{default}"]
    lines += ["", "## Messages", ""]
    for message in components["messages"].values():
        lines += [f"### {message['title']}", "", plain(message.get("summary", "")), ""]
        lines += [f"- Content type: `{message['contentType']}`"]
        lines += [f"- Headers: {kind(message['headers'], NAME)}"]
        lines += [f"- Payload: {kind(message['payload'], NAME)}", ""]
    lines += ["## Schemas", "", *described(NAME, components["schemas"])]
    return "\n".join(lines)
