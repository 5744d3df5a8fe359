#!/usr/bin/env bash
# Runs every command of docs/tutorial.md with the real binary, in an empty folder, and compares its output with the
# output in the document.
#
#   scripts/test-tutorial.sh [--write]       --write replaces the outputs in the document
#
# tutorial.py describes how outputs are compared. psql is the Debian package postgresql-client. If it cannot be installed,
# psql-stand-in.py runs the statements with psycopg and prints rows as psql does, and the output has a line about it.
# README.md has the rules for scripts.
set -uo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/node-lib.sh
. scripts/node-lib.sh

PSYCOPG=3.3.9

command -v python3 >/dev/null || skip "no python3"
mkdir "$dir/bin" "$dir/empty"
ln -s "$terrace" "$dir/bin/terrace"
if command -v psql >/dev/null || { [ "$(id -u)" = 0 ] && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends postgresql-client >/dev/null 2>&1; }; then
    echo "SQL by $(psql --version)"
elif python_place "psycopg-$PSYCOPG" "import psycopg; assert psycopg.__version__ == '$PSYCOPG'" "psycopg[binary]==$PSYCOPG"; then
    printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$(realpath -s "$python")" "$PWD/scripts/psql-stand-in.py" >"$dir/bin/psql"
    chmod +x "$dir/bin/psql"
    echo "SQL by psycopg $PSYCOPG: psql is missing and cannot be installed (Debian package postgresql-client)"
else
    skip "neither psql nor psycopg $PSYCOPG can be had"
fi

page=$PWD/docs/tutorial.md runner=$PWD/scripts/tutorial.py
cd "$dir/empty" || exit 1
PATH=$dir/bin:$PATH python3 "$runner" "$page" "$@"
