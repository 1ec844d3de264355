"""Many files' nodes in one transaction, with the importer's rights (R23)."""

import json
from collections.abc import Mapping, Sequence
from functools import partial

from packhorse.content import tree
from packhorse.content.node import ROOT, ancestors_of
from packhorse.content.queries import Pool, reading
from packhorse.content.schemas import BinaryReference
from packhorse.content.tree import ADD_FOLDERS, FOLDER
from packhorse.db.blocking import in_blocking_code
from packhorse.jobs.content_changes.change import of_writing
from packhorse_services.content.http.nodes import record, said_by, watches
from packhorse_services.content.http.writers import Writers
from packhorse_services.content.transfer.file_nodes import WRITE_FILES
from packhorse_services.content.transfer.folder_import import DATA, FILE

_REFERENCE = {"digest", "length", "media_type"}

_SAME = """
    SELECT path FROM unnest(%s::text[], %s::jsonb[]) AS given (path, binaries)
    JOIN content.node AS node USING (path)
    WHERE node.type = %s AND node.binaries @> given.binaries
"""


async def changed(
    pool: Pool, given: Mapping[str, BinaryReference]
) -> Mapping[str, BinaryReference]:
    """Return those files that the tree does not have just so."""
    if not given:
        return {}
    async with reading(pool) as conn:
        rows = await conn.execute(_SAME, (list(given), _texts(given), FILE))
        same = {path for (path,) in await rows.fetchall()}
    return {path: one for path, one in given.items() if path not in same}


async def write(
    writers: Writers, given: Mapping[str, BinaryReference], folders: Sequence[str], user: str
) -> None:
    """Write files and folders, and the folders above them that are missing."""
    above = {one for path in (*given, *folders) for one in ancestors_of(path)}
    wanted = sorted({*above, *folders} - {ROOT} - set(given))
    if not given and not wanted:
        return
    async with writers.transaction() as conn:
        watching = await watches(conn)
        present: dict[str, str] = {}
        if watching:
            present = await in_blocking_code(conn, partial(tree.present, paths=[*given, *folders]))
        await conn.execute(ADD_FOLDERS, (FOLDER, wanted))
        await conn.execute(WRITE_FILES, (FILE, list(given), _texts(given)))
        made = [path for path in folders if path not in present]
        await record(conn, watching, [*of_writing(present, [*given, *made], (), said_by(user))])


def _texts(given: Mapping[str, BinaryReference]) -> list[str]:
    return [json.dumps({DATA: one.model_dump(include=_REFERENCE)}) for one in given.values()]
