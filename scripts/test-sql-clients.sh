#!/usr/bin/env bash
# Tests the SQL service of a node on loopback with stock clients: psql and psycopg 3. Then a message is sent to the node
# and read with SQL.
#
#   scripts/test-sql-clients.sh
#
# The node is the program that TERRACE names, else target/release/terrace. psycopg is installed once into a virtual
# environment in the cache directory: TERRACE_CACHE, else $XDG_CACHE_HOME/terrace, else ~/.cache/terrace. psql is the
# Debian package postgresql-client. The cases are in sql-client-test.py; test-sql-drivers.sh tests drivers of other
# languages.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/node-lib.sh
. scripts/node-lib.sh

PSYCOPG=3.3.9

command -v python3 >/dev/null || skip "no python3"
command -v openssl >/dev/null || skip "no openssl"
if ! command -v psql >/dev/null; then
    { [ "$(id -u)" = 0 ] && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql-client; } \
        >/dev/null 2>&1 || skip "no psql, and it cannot be installed (Debian package postgresql-client)"
fi
python_place "psycopg-$PSYCOPG" "import psycopg; assert psycopg.__version__ == '$PSYCOPG'" "psycopg[binary]==$PSYCOPG" ||
    skip "psycopg $PSYCOPG cannot be installed from PyPI"

openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" \
    -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
start_node "certificate = \"$dir/cert.pem\"" "key = \"$dir/key.pem\""
"$terrace" message send crates/terrace/template/admission.hl7 --to "$mllp" >"$dir/ack" || { cat "$dir/ack"; exit 1; }
MLLP=$mllp run_client psycopg "$python" scripts/sql-client-test.py 127.0.0.1 "${address##*:}" "$dir/cert.pem"
tell
