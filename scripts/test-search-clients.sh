#!/usr/bin/env bash
# Tests the search service of a node on loopback with stock clients of the Elasticsearch API: elasticsearch-py and opensearch-py,
# and a short race of esrally. A client that cannot be installed is reported as skipped; the others run.
#
#   scripts/test-search-clients.sh
#
# The node is the program that TERRACE names, else target/release/terrace, and the track of the race is written by `terrace bench
# rally --track`. Packages are installed once from PyPI into virtual environments in the cache directory: TERRACE_CACHE, else
# $XDG_CACHE_HOME/terrace, else ~/.cache/terrace. The cases are in search-client-test.py.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/node-lib.sh
. scripts/node-lib.sh

ELASTICSEARCH=8.19.1
OPENSEARCH=3.0.0
DOCUMENTS=5000

command -v python3 >/dev/null || skip "no python3"

# library NAME PACKAGE VERSION EXTRA: runs the cases with that library.
library() {
    local name=$1 module=$2 version=$3 place
    python_place "$name-py-$version" "import aiohttp, $module" "$4==$version" ||
        { echo "skipped: $name ($4 $version cannot be installed from PyPI)"; return; }
    run_client "$name" "$python" scripts/search-client-test.py "$name" "$url"
}

# race: the whole schedule of the track, its searches at the same time. Fails with the first request that fails.
race() {
    local esrally parameters
    esrally=$(bash crates/lab/rally/esrally.sh 2>"$dir/esrally-log") || { echo "skipped: esrally ($(tail -1 "$dir/esrally-log"))"; return; }
    # esrally looks for other processes of its name on the machine, and listens on a fixed port.
    [ "$(id -u)" = 0 ] && unshare --net --pid --fork true 2>/dev/null || { echo "skipped: esrally (namespaces need root)"; return; }
    parameters=$("$terrace" bench rally --track "$dir/track" --docs $DOCUMENTS) || { echo "FAILED esrally: no track"; failed=$((failed + 1)); return; }
    mkdir "$dir/home"
    if HOME=$dir/home unshare --pid --fork --mount-proc "$esrally" race --pipeline=benchmark-only --offline --on-error=abort \
        --target-hosts="${url#http://}" --track-path="$dir/track" --report-format=csv --report-file="$dir/report" \
        --track-params="$parameters,bulk:500,iterations:2,warmup:0,together:1" >"$dir/race" 2>&1 </dev/null &&
        [ "$(grep -c '^error rate,' "$dir/report")" -ge 15 ] && ! grep '^error rate,' "$dir/report" | grep -qv ',0.00,'; then
        echo "passed esrally: $(sed -n 's/^Median Throughput,index-append,\(.*\),docs.s/\1/p' "$dir/report") docs/s, no error"
        passed=$((passed + 1))
    else
        tail -20 "$dir/race"
        grep '^error rate,' "$dir/report" 2>/dev/null | grep -v ',0.00,' || true
        echo "FAILED esrally: the race failed"
        failed=$((failed + 1))
    fi
}

printf 'listen = "127.0.0.1:0"\n[search]\nlisten = "127.0.0.1:0"\ntrust = true\n' >"$dir/terrace.toml"
(cd "$dir" && exec "$terrace" serve) 2>"$dir/log" &
pid=$!
wait_ready
url=http://$(sed -n 's/.* search address=//p' "$dir/log")
[ "$url" != http:// ] || { cat "$dir/log" >&2; echo "0 passed, 1 failed"; exit 1; }
library elasticsearch elasticsearch $ELASTICSEARCH "elasticsearch[async]"
library opensearch opensearchpy $OPENSEARCH "opensearch-py[async]"
race
[ $((passed + failed)) -gt 0 ] || skip "no client can run"
tell
