#!/usr/bin/env bash
# Drivers of other languages against a node's SQL on loopback: Go's pgx and lib/pq, Node's pg. One whose toolchain is not there, or whose
# packages cannot be had, is reported as skipped; the others run.
#
#   scripts/sql-drivers/run.sh
#
# The node is the program that TERRACE names, else target/release/terrace. The clients are in sql-drivers/; versions are pinned there
# (go.sum, package.json). Go's modules come from the module proxy, pg from npm, once into the cache directory: TERRACE_CACHE, else
# $XDG_CACHE_HOME/terrace, else ~/.cache/terrace.
set -euo pipefail
cd "$(dirname "$0")/../.."

terrace=$(realpath -m "${TERRACE:-${CARGO_TARGET_DIR:-target}/release/terrace}")
[ -x "$terrace" ] || { echo "there is no $terrace; build it with cargo build --release" >&2; exit 1; }
cache=${TERRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/terrace}
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

# go_client: builds it; says why it is skipped where that is not possible.
go_client() {
    command -v go >/dev/null || { echo "skipped: go (no toolchain)"; return 1; }
    (cd scripts/sql-drivers/go && GOFLAGS=-mod=readonly GOTOOLCHAIN=local go build -o "$dir/go-client" .) 2>"$dir/go-log" || {
        # Code of ours that does not compile is no reason to skip.
        grep -q '^\./\|^# terrace' "$dir/go-log" && { cat "$dir/go-log" >&2; echo "0 passed, 1 failed"; exit 1; }
        echo "skipped: go ($(head -1 "$dir/go-log"))"
        return 1
    }
}

# node_client: installs pg once; says why it is skipped where that is not possible.
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

clients=
go_client && clients="$clients go"
node_client && clients="$clients node"
if [ -z "$clients" ]; then
    echo "0 passed, 0 failed"
    exit 0
fi

verifier=$(echo s3cret | "$terrace" sql verifier)
cat >"$dir/terrace.toml" <<TOML
listen = "127.0.0.1:0"
[sql]
listen = "127.0.0.1:0"
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
if [ -z "$address" ]; then
    cat "$dir/log" >&2
    echo "0 passed, 1 failed"
    exit 1
fi
url=postgres://ann:s3cret@$address/terrace

passed=0
failed=0
for client in $clients; do
    case $client in
        go) "$dir/go-client" "$url" >"$dir/told" 2>&1 || true ;;
        node) node "$node_place/client.js" "$url" >"$dir/told" 2>&1 || true ;;
    esac
    last=$(tail -1 "$dir/told")
    if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        sed '$d' "$dir/told"
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
    else
        cat "$dir/told"
        echo "FAILED $client: it did not come to its end"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
