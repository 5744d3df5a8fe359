#!/usr/bin/env bash
# Compares the group commit of the journal with other engines on the disk of this machine: records of 1 KiB, durable
# before they are acknowledged.
#
#   scripts/bench-journal-peers.sh [DIR [SECONDS [ROUNDS]]]        default: ./peers-data 5 2
#
#   journal    crates/storage/journal: append + commit from N threads                 (records, checksums, recovery)
#   bare       one mutex, two buffers, pwrite + fdatasync on a preallocated file      (the upper limit; same program)
#   redis      appendonly yes, appendfsync always; redis-benchmark SET over a unix socket
#              (one reply after one fsync per event-loop turn; client and server share the cores)
#   rocksdb    db_bench fillrandom sync=1: write groups with one fsync of the WAL each   (plus memtable and index)
#   fio        one 4 KiB O_DIRECT write + fdatasync per job. This is NOT group commit: every job waits for its own
#              flush, and the kernel merges flushes where it can. It shows the rate of the disk without group commit.
#
# The engines take turns, round after round, so that a slow minute of the disk affects all of them. The engines do
# different work besides the log: the table compares the cost of durability, not the products.
#
# It needs the Debian packages redis-server, redis-tools, rocksdb-tools and fio. As root it installs missing packages
# with apt-get. Redis runs in DIR on its own socket, and the script ends it by its process id.
set -euo pipefail

source "$(dirname "$0")/peers-lib.sh"
redis_pid=

end_redis() {
    if [[ -n $redis_pid ]]; then
        kill "$redis_pid" 2>/dev/null || true
        wait "$redis_pid" 2>/dev/null || true
        redis_pid=
    fi
}
trap 'end_redis; rm -rf "$dir"' EXIT

run_ours() { # both lines come from one program, which alternates between them in nine turns
    local each
    each=$(awk "BEGIN { print $seconds / 9 }")
    "$bench" "$dir/ours" "$each" "$1" | awk '$1 == "bare" || $1 == "journal" { print $1, $3, $4, $5 }' |
        while read -r engine rate p50 p99; do note "$engine" "$1" "$rate" "$p50" "$p99"; done
}

run_redis() {
    rm -rf "$dir/redis" && mkdir "$dir/redis"
    redis-server --port 0 --unixsocket "$dir/redis/socket" --dir "$dir/redis" --save '' \
        --appendonly yes --appendfsync always --auto-aof-rewrite-percentage 0 --daemonize no > "$dir/redis/log" &
    redis_pid=$!
    until redis-cli -s "$dir/redis/socket" ping > /dev/null 2>&1; do sleep 0.05; done
    # redis-benchmark counts requests, not time: a short run measures how many requests fill the time.
    local rate
    rate=$(redis_set "$1" $((500 * $1)) | cut -d' ' -f1)
    read -r rate p50 p99 < <(redis_set "$1" "$(awk "BEGIN { print int($rate * $seconds) }")")
    note redis "$1" "$rate" "$p50" "$p99"
    end_redis
}

redis_set() { # committers, requests -> rate, p50 us, p99 us
    redis-benchmark -s "$dir/redis/socket" -c "$1" -n "$2" -d 1024 -r 100000 -t set --csv |
        awk -F'"' '$2 == "SET" { printf "%.0f %.0f %.0f\n", $4, $10 * 1000, $14 * 1000 }'
}

run_fio() {
    mkdir -p "$dir/fio"
    fio --name=commit --directory="$dir/fio" --rw=write --bs=4k --direct=1 --ioengine=psync --fdatasync=1 \
        --numjobs="$1" --size=1m --overwrite=1 --time_based --runtime="$seconds" --group_reporting \
        --output-format=json > "$dir/fio.json" 2> /dev/null
    # A commit is a write and the flush after it.
    python3 - "$dir/fio.json" << 'PYTHON' | while read -r rate p50 p99; do note fio "$1" "$rate" "$p50" "$p99"; done
import json, sys
job = json.load(open(sys.argv[1]))["jobs"][0]
at = lambda p: sum(job[a][b]["percentile"][p] for a, b in (("write", "clat_ns"), ("sync", "lat_ns"))) / 1000
print(round(job["write"]["iops"]), round(at("50.000000")), round(at("99.000000")))
PYTHON
    rm -rf "$dir/fio"
}

need redis-server redis-server redis-benchmark redis-tools db_bench rocksdb-tools fio fio
(cd "$repo" && cargo build --quiet --release -p journal --example commit_bench)
bench=${CARGO_TARGET_DIR:-$repo/target}/release/examples/commit_bench

take_turns ours redis rocksdb fio
print_table commits journal bare redis rocksdb fio
