#!/usr/bin/env bash
# Compares the SQL service of a node with PostgreSQL: thousands of seeded statements run on both, and their results, types, column names and
# SQLSTATEs must be equal, or the difference is in the table of docs/sql-differences.md.
#
#   scripts/test-sql-differential.sh [--seed N] [--statements N | --hours H] [--show N] [--all] [--try FILE]
#
# Without options, as in ci, it runs 5,000 statements of seed 1, which takes a minute: a merge fails by its own changes alone. With options
# a seed is drawn unless one is given. A failure prints the seed, the causes by their number, and the smallest
# statement of each.
# PostgreSQL is Debian's package, in a cluster of its own on a socket in a temporary folder; it is installed where it is missing. The node is
# the program that TERRACE names, else target/release/terrace. psycopg is installed once into the cache directory.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/node-lib.sh
. scripts/node-lib.sh

PSYCOPG=3.3.9

command -v python3 >/dev/null || skip "no python3"
if ! compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then
    { [ "$(id -u)" = 0 ] && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql; } >/dev/null 2>&1 ||
        skip "no PostgreSQL, and it cannot be installed (Debian package postgresql)"
fi
bin=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -1)
python_place "psycopg-$PSYCOPG" "import psycopg; assert psycopg.__version__ == '$PSYCOPG'" "psycopg[binary]==$PSYCOPG" ||
    skip "psycopg $PSYCOPG cannot be installed from PyPI"

# PostgreSQL refuses to run as root: its package has a user for it.
place=$dir/postgres
mkdir "$place"
as=()
if [ "$(id -u)" = 0 ]; then
    chmod 711 "$dir"
    chown postgres "$place"
    as=(setpriv --reuid postgres --regid postgres --clear-groups)
fi
"${as[@]}" "$bin/initdb" -A trust -U ann --encoding UTF8 --locale C.UTF-8 --no-sync -D "$place/data" >/dev/null
stop_postgres() {
    "${as[@]}" "$bin/pg_ctl" -s -m immediate -D "$place/data" stop || true
    end
}
trap stop_postgres EXIT
"${as[@]}" "$bin/pg_ctl" -s -w -D "$place/data" -l "$place/log" \
    -o "-c listen_addresses= -c unix_socket_directories=$place -c fsync=off -c timezone=UTC -c shared_buffers=32MB" start

(($#)) || set -- --seed 1 --statements 5000
start_node "trust = true"
run_client differential "$python" scripts/sql-differential.py "host=$place user=ann dbname=postgres" \
    "host=${address%:*} port=${address##*:} user=ann dbname=terrace sslmode=disable" --known docs/sql-differences.md "$@"
tell
