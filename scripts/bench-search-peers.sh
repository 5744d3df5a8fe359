#!/usr/bin/env bash
# Compares the search service of a node with a real Elasticsearch 8.19, by the same track of esrally, round after round, and what
# both find.
#
#   scripts/bench-search-peers.sh [DIR [ROUNDS [DOCUMENTS [ITERATIONS]]]]        default: ./peers-data 3 300000 100
#
#   figures   esrally, bulks of 5,000 from two clients, durable before their response on both (translog durability `request`), then
#             each query ITERATIONS times; 1 GiB of memory for search, 1 GiB of heap. Both run all the time, one is loaded at a time.
#             Elasticsearch has WARM rounds of the bulks before the first one that counts: a cold JVM is many times slower.
#   hits      the number of hits of the track's 15 queries, and their buckets, on the same documents
#   scores    the best ten of 200 drawn queries, with one shard and one segment: the same documents, scores within 1e-5
#
# With 0 rounds only hits and scores are compared. LOAD=python has a client in Python in place of esrally, which takes minutes
# for each race: the same bulks and queries, both servers in turns.
#
# Elasticsearch is downloaded from Maven Central into the folder of downloads and only run; it runs as the user nobody, with a small
# plugin of ours (search-peers/), since that archive does not respond to GET /. Needs root, a JDK, curl, unzip and python3.
# TERRACE names the program, else target/release/terrace. Exit code 1 if something differs.
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)

ES=8.19.21
HEAP=1g
WARM=${WARM:-3}
QUERIES=200
SEED=${SEED:-1}

mkdir -p "${1:-peers-data}"
dir=$(mktemp -d "$(cd "${1:-peers-data}" && pwd)/peers-XXXXXX")
chmod 755 "$dir"
rounds=${2:-3} documents=${3:-300000} iterations=${4:-100}
terrace=$(realpath -m "${TERRACE:-${CARGO_TARGET_DIR:-$repo/target}/release/terrace}")
[ -x "$terrace" ] || { echo "there is no $terrace; build it with cargo build --release --package terrace --package bench" >&2; exit 2; }
cache=${TERRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/terrace}
node_pid= peer_pid=

end() {
    for pid in $node_pid $peer_pid; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$dir"
}
trap end EXIT

die() {
    echo "$1" >&2
    exit 2
}

# free_port: prints a port that is free at this moment.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# fetch_peer: downloads Elasticsearch once and sets `home`, a copy for this run.
fetch_peer() {
    local zip=$cache/elasticsearch-$ES.zip
    local url=https://repo1.maven.org/maven2/org/elasticsearch/distribution/integ-test-zip/elasticsearch/$ES/elasticsearch-$ES.zip
    if [ ! -s "$zip" ]; then
        mkdir -p "$cache"
        curl -fsS -o "$zip.new" "$url" || die "Elasticsearch $ES cannot be fetched from Maven Central"
        mv "$zip.new" "$zip"
    fi
    unzip -q "$zip" -d "$dir"
    home=$dir/elasticsearch-$ES
    mkdir -p "$dir/classes" "$home/plugins/root-handler" "$dir/es/data" "$dir/es/logs"
    javac -nowarn -d "$dir/classes" -cp "$home/lib/*" "$repo/scripts/search-peers/RootHandler.java"
    jar cf "$home/plugins/root-handler/root-handler.jar" -C "$dir/classes" .
    cat >"$home/plugins/root-handler/plugin-descriptor.properties" <<PROPERTIES
description=responds to GET /
version=1.0
name=root-handler
classname=terrace.peers.RootHandler
java.version=17
elasticsearch.version=$ES
PROPERTIES
    chown -R nobody "$home" "$dir/es"
}

start_peer() {
    local port java_home
    port=$(free_port)
    java_home=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
    (cd "$home" && exec setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$dir/es" ES_JAVA_OPTS="-Xms$HEAP -Xmx$HEAP" \
        ES_JAVA_HOME="$java_home" bin/elasticsearch -Ediscovery.type=single-node -Enetwork.host=127.0.0.1 -Ehttp.port="$port" \
        -Etransport.port="$(free_port)" -Epath.data="$dir/es/data" -Epath.logs="$dir/es/logs" -Expack.security.enabled=false \
        -Ecluster.routing.allocation.disk.threshold_enabled=false) >"$dir/es/out" 2>&1 </dev/null &
    peer_pid=$!
    peer=http://127.0.0.1:$port
    for _ in $(seq 600); do
        curl -fs "$peer" >/dev/null && return
        kill -0 "$peer_pid" 2>/dev/null || break
        sleep 0.2
    done
    tail -20 "$dir/es/out" >&2
    die "Elasticsearch does not start"
}

start_node() {
    printf 'listen = "127.0.0.1:0"\n[search]\nlisten = "127.0.0.1:0"\ntrust = true\nmemory = "1GiB"\nmessages = false\n' >"$dir/terrace.toml"
    (cd "$dir" && exec "$terrace" serve) >/dev/null 2>"$dir/log" &
    node_pid=$!
    for _ in $(seq 600); do
        address=$(sed -n 's/.* search address=//p' "$dir/log")
        [ -n "$address" ] && { ours=http://$address; return; }
        kill -0 "$node_pid" 2>/dev/null || break
        sleep 0.1
    done
    cat "$dir/log" >&2
    die "the node does not start"
}

# cpu PID: processor time of a process and of those below it so far, in seconds.
cpu() {
    python3 - "$1" <<'PYTHON'
import glob, os, sys
parents, ticks = {}, {}
for path in glob.glob("/proc/[0-9]*/stat"):
    try:
        fields = open(path).read().rsplit(")", 1)[1].split()
    except OSError:
        continue
    pid = path.split("/")[2]
    parents[pid], ticks[pid] = fields[1], int(fields[11]) + int(fields[12])
below = lambda pid: ticks.get(pid, 0) + sum(below(child) for child, parent in parents.items() if parent == pid)
print(below(sys.argv[1]) / os.sysconf("SC_CLK_TCK"))
PYTHON
}

# race SIDE URL PID NAME CHALLENGE: one race; its report is DIR/NAME.csv.
race() {
    local before after
    before=$(cpu "$3")
    mkdir -p "$dir/rally"
    HOME=$dir/rally unshare --pid --fork --mount-proc "$esrally" race --pipeline=benchmark-only --offline --on-error=abort \
        --target-hosts="${2#http://}" --track-path="$dir/track" --challenge="$5" --report-format=csv --report-file="$dir/$4.csv" \
        --track-params="$parameters,iterations:$iterations" >"$dir/$4.log" 2>&1 </dev/null ||
        { tail -20 "$dir/$4.log" >&2; die "the race $4 failed"; }
    after=$(cpu "$3")
    echo "$4 $5: $(sed -n 's/^Median Throughput,index-append,\(.*\),docs.s/\1/p' "$dir/$4.csv") docs/s," \
        "$(awk "BEGIN { printf \"%.1f\", ($after - $before) * 1e6 / $documents }") us of CPU for each document," \
        "load $(cut -d' ' -f1 /proc/loadavg)" | tee -a "$dir/cpu" >&2
}

[ "$(id -u)" = 0 ] || die "it needs root: Elasticsearch runs as another user, esrally in a process namespace"
for command in javac jar curl unzip python3 unshare setpriv; do command -v $command >/dev/null || die "no $command"; done
[ "${LOAD:-esrally}" = python ] || esrally=$(bash "$repo/crates/lab/rally/esrally.sh")
parameters=$("$terrace" bench rally --track "$dir/track" --docs "$documents" --seed "$SEED")
fetch_peer
start_peer
start_node
echo "Terrace at $ours, Elasticsearch $ES at $peer; $documents documents, $rounds rounds, $(nproc) processors, $(uname -r)"

compare=$repo/scripts/search-peers/compare.py
if ((rounds > 0)) && [ "${LOAD:-esrally}" = python ]; then
    # The first rounds warm the JVM.
    python3 "$compare" race "$ours" "$peer" "$dir/track" "$WARM" 20 >"$dir/warm"
    python3 "$compare" race "$ours" "$peer" "$dir/track" "$rounds" "$iterations"
    rounds=0
fi
for ((warm = 1; rounds > 0 && warm <= WARM; warm++)); do race peer "$peer" "$peer_pid" "warm-$warm" index-only; done
if ((rounds > 0)); then
    # The processor time of the bulks alone, which the other challenge does not show.
    race ours "$ours" "$node_pid" bulks-ours index-only
    race peer "$peer" "$peer_pid" bulks-peer index-only
fi
for ((round = 1; round <= rounds; round++)); do
    race ours "$ours" "$node_pid" "ours-$round" append-and-query
    race peer "$peer" "$peer_pid" "peer-$round" append-and-query
done
failed=0
if ((rounds > 0)); then
    python3 "$compare" table "$dir" || failed=1
    grep '^bulks-' "$dir/cpu"
fi
for url in "$ours" "$peer"; do python3 "$compare" load "$url" compared "$dir/track"; done
python3 "$compare" hits "$ours" "$peer" compared "$dir/track" || failed=1
python3 "$compare" top "$ours" "$peer" compared "$dir/track" "$SEED" "$QUERIES" || failed=1
exit "$failed"
