#!/usr/bin/env bash
# Tests the SQL service of a node on loopback with drivers, and with the catalog queries that the drivers send on their
# own: pgx and lib/pq of Go, pg of Node, SQLAlchemy with psycopg, asyncpg and pandas of Python, the JDBC driver of Java.
# A driver whose toolchain is missing, or whose packages cannot be downloaded, is reported as skipped; the others run.
#
#   scripts/test-sql-drivers.sh
#
# The node is the program that TERRACE names, else target/release/terrace. The clients are in sql-drivers/. Versions are
# pinned there (go.sum, package.json, requirements.txt) and here. Packages are downloaded once into the cache directory
# (TERRACE_CACHE, else $XDG_CACHE_HOME/terrace, else ~/.cache/terrace): Go modules from the module proxy, pg from npm,
# Python packages from PyPI, the JDBC driver from Maven Central.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/node-lib.sh
. scripts/node-lib.sh

JDBC=42.7.4

# go_client: builds the client. If that is not possible, prints why the client is skipped.
go_client() {
    command -v go >/dev/null || { echo "skipped: go (no toolchain)"; return 1; }
    (cd scripts/sql-drivers/go && GOFLAGS=-mod=readonly GOTOOLCHAIN=local go build -o "$dir/go-client" .) 2>"$dir/go-log" || {
        # A compile error of our own code must fail, not skip.
        grep -q '^\./\|^# terrace' "$dir/go-log" && { cat "$dir/go-log" >&2; echo "0 passed, 1 failed"; exit 1; }
        echo "skipped: go ($(head -1 "$dir/go-log"))"
        return 1
    }
}

# node_client: installs pg once. If that is not possible, prints why the client is skipped.
node_client() {
    command -v node >/dev/null && command -v npm >/dev/null || { echo "skipped: node (no toolchain)"; return 1; }
    local version
    version=$(sed -n 's/.*"pg": "\(.*\)".*/\1/p' scripts/sql-drivers/node/package.json)
    node_place=$cache/node-pg-$version
    if [ ! -d "$node_place/node_modules/pg" ]; then
        rm -rf "$node_place"
        mkdir -p "$node_place"
        cp scripts/sql-drivers/node/package.json "$node_place/"
        (cd "$node_place" && npm install --silent --no-audit --no-fund --ignore-scripts) >"$dir/npm-log" 2>&1 || {
            rm -rf "$node_place"
            echo "skipped: node (pg $version cannot be installed from npm)"
            return 1
        }
    fi
    cp scripts/sql-drivers/node/client.js "$node_place/client.js"
}

# python_client: installs the packages once. If that is not possible, prints why the client is skipped.
python_client() {
    local wanted=scripts/sql-drivers/python/requirements.txt sum
    command -v python3 >/dev/null || { echo "skipped: python (no python3)"; return 1; }
    sum=$(sha256sum "$wanted")
    python_place "sql-drivers-${sum:0:12}" "import asyncpg, pandas, psycopg, sqlalchemy" -r "$wanted" && return
    echo "skipped: python (the packages of $wanted cannot be installed from PyPI)"
    return 1
}

# java_client: downloads the driver once. If that is not possible, prints why the client is skipped.
java_client() {
    command -v javac >/dev/null || { echo "skipped: java (no JDK)"; return 1; }
    jar=$cache/postgresql-$JDBC.jar
    [ -s "$jar" ] && return
    curl -fsS -o "$jar.new" "https://repo1.maven.org/maven2/org/postgresql/postgresql/$JDBC/postgresql-$JDBC.jar" 2>/dev/null &&
        mv "$jar.new" "$jar" && return
    echo "skipped: java (the driver $JDBC cannot be fetched from Maven Central)"
    return 1
}

clients=
for client in go node python java; do
    "${client}_client" && clients="$clients $client"
done
[ -n "$clients" ] || skip "no client can run"

start_node
url=postgres://ann:s3cret@$address/terrace
for client in $clients; do
    case $client in
        go) run_client go "$dir/go-client" "$url" ;;
        node) run_client node node "$node_place/client.js" "$url" ;;
        python) run_client python "$python" scripts/sql-drivers/python/client.py "$url" ;;
        java) run_client java java -cp "$jar" scripts/sql-drivers/java/SqlClientTest.java "jdbc:postgresql://$address/terrace" ;;
    esac
done
tell
