#!/bin/sh
# Makes the database password and the first token of docker-compose.yml, once, in the folder it is
# given, and what the pipeline is told of both. Each program is then told the files that it needs.
set -eu
umask 077
cd "$1"

# once FILE COMMAND…: FILE holds what COMMAND prints; it is there whole or not at all.
once() {
  file=$1
  shift
  [ -e "$file" ] || { "$@" > "$file.new" && mv "$file.new" "$file"; }
}

random() {
  python -c 'import secrets; print(secrets.token_urlsafe(24), end="")'
}

once postgres-password random
for database in author sub1 sub2 sub3; do
  once "$database-database-url" printf 'postgresql://packhorse:%s@postgres:5432/%s' \
    "$(cat postgres-password)" "$database"
done
once subscriber-databases python -c 'import json, pathlib
names = ("sub1", "sub2", "sub3")
print(json.dumps({n: pathlib.Path(f"{n}-database-url").read_text() for n in names}), end="")'
python -c 'from pathlib import Path
from packhorse.runtime.token_file import ensure_token_file
ensure_token_file(Path("tokens"))'
once publisher-token python -c 'import json
print(json.load(open("tokens"))["tokens"][0]["token"], end="")'
