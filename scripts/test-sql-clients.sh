#!/usr/bin/env bash
# Stock clients against a node's SQL on loopback: psql and psycopg 3, and with --jdbc PostgreSQL's JDBC driver too. Then a
# message is sent to the node, and asked for with SQL.
#
#   scripts/test-sql-clients.sh [--jdbc]
#
# The node is the program that TERRACE names, else target/release/terrace. psycopg is installed once into a virtual environment in the cache directory: TERRACE_CACHE, else
# $XDG_CACHE_HOME/terrace, else ~/.cache/terrace. psql comes from Debian (postgresql-client), the driver from Maven
# Central; --jdbc needs a JDK. The cases are in sql-client-test.py and SqlClientTest.java.
set -euo pipefail
cd "$(dirname "$0")/.."

PSYCOPG=3.3.9
JDBC=42.7.4

skip() {
    echo "skipped: $1"
    echo "0 passed, 0 failed"
    exit 0
}

jdbc=
[ "${1:-}" = --jdbc ] && jdbc=1
command -v python3 >/dev/null || skip "no python3"
command -v openssl >/dev/null || skip "no openssl"
if ! command -v psql >/dev/null; then
    { [ "$(id -u)" = 0 ] && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql-client; } \
        >/dev/null 2>&1 || skip "no psql, and it cannot be installed (Debian package postgresql-client)"
fi

cache=${TERRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/terrace}
venv=$cache/psycopg-$PSYCOPG-$(python3 -c 'import platform; print(platform.python_version())')
if ! "$venv/bin/python" -c "import psycopg; assert psycopg.__version__ == '$PSYCOPG'" 2>/dev/null; then
    rm -rf "$venv"
    mkdir -p "$cache"
    python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check "psycopg[binary]==$PSYCOPG" ||
        skip "psycopg $PSYCOPG cannot be installed from PyPI"
fi

terrace=$(realpath -m "${TERRACE:-${CARGO_TARGET_DIR:-target}/release/terrace}")
[ -x "$terrace" ] || { echo "there is no $terrace; build it with cargo build --release" >&2; exit 1; }

dir=$(mktemp -d)
pid=
end() {
    if [ -n "$pid" ]; then
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    fi
    rm -rf "$dir"
}
trap end EXIT
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" \
    -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
verifier=$(echo s3cret | "$terrace" sql verifier)
cat >"$dir/terrace.toml" <<TOML
listen = "127.0.0.1:0"
[sql]
listen = "127.0.0.1:0"
certificate = "$dir/cert.pem"
key = "$dir/key.pem"
[sql.users]
ann = "$verifier"
TOML
(cd "$dir" && exec "$terrace" serve) 2>"$dir/log" &
pid=$!
for _ in $(seq 300); do
    grep -q ' ready ' "$dir/log" && break
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
done
address=$(sed -n 's/.* sql address=//p' "$dir/log")
mllp=$(sed -n 's/.* listening .*address=//p' "$dir/log" | head -1)
if [ -z "$address" ] || [ -z "$mllp" ]; then
    cat "$dir/log" >&2
    echo "0 passed, 1 failed"
    exit 1
fi

"$terrace" message send crates/terrace/template/admission.hl7 --to "$mllp" >"$dir/ack" || { cat "$dir/ack"; exit 1; }
status=0
"$venv/bin/python" scripts/sql-client-test.py 127.0.0.1 "${address##*:}" "$dir/cert.pem" || status=1
if [ -n "$jdbc" ]; then
    command -v javac >/dev/null || { echo "--jdbc needs a JDK" >&2; exit 1; }
    jar=$cache/postgresql-$JDBC.jar
    [ -s "$jar" ] || curl -fsS -o "$jar" "https://repo1.maven.org/maven2/org/postgresql/postgresql/$JDBC/postgresql-$JDBC.jar"
    java -cp "$jar" scripts/SqlClientTest.java "jdbc:postgresql://127.0.0.1:${address##*:}/terrace" || status=1
fi
exit $status
