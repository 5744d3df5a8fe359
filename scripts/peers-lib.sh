# Functions of scripts/bench-*-peers.sh: arguments, folder, packages, RocksDB, and the table. This file is sourced, not
# run. It takes DIR, SECONDS and ROUNDS from the arguments of the script, and sets `dir`, `seconds`, `rounds`,
# `committers`, `results`.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
seconds=${2:-5}
rounds=${3:-2}
committers=(1 16 128)
mkdir -p "${1:-peers-data}"
# A folder of the run alone, which is removed at the end. Other files in DIR are not touched.
dir=$(mktemp -d "$(cd "${1:-peers-data}" && pwd)/peers-XXXXXX")
results="$dir/results"
: > "$results"

# need COMMAND PACKAGE [COMMAND PACKAGE]...: installs the Debian packages of the missing commands.
need() {
    local missing=()
    while (($#)); do
        command -v "$1" > /dev/null || missing+=("$2")
        shift 2
    done
    if ((${#missing[@]})); then
        echo "installing ${missing[*]}" >&2
        # RUNLEVEL=1: the packages of Debian then do not start their services.
        RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" >&2
    fi
}

# note ENGINE COMMITTERS RATE P50 P99: adds a line to the results; the rate is in commits per second, p50 and p99 in
# microseconds.
note() { echo "$1 $2 $3 $4 $5" | tee -a "$results" >&2; }

run_rocksdb() { # committers
    rm -rf "$dir/rocksdb"
    db_bench --db="$dir/rocksdb" --benchmarks=fillrandom --sync=1 --threads="$1" --value_size=1024 --key_size=16 \
        --num=10000000 --duration="$seconds" --compression_type=none --histogram=1 \
        --write_buffer_size=$((512 << 20)) --max_write_buffer_number=2 > "$dir/rocksdb.log" 2>&1
    local rate p50 p99
    rate=$(awk '$1 == "fillrandom" { for (i = 2; i <= NF; i++) if ($i == "ops/sec") print $(i - 1) }' "$dir/rocksdb.log")
    read -r p50 p99 < <(awk '$1 == "Percentiles:" { printf "%.0f %.0f\n", $3, $7 }' "$dir/rocksdb.log")
    note rocksdb "$1" "$rate" "$p50" "$p99"
    rm -rf "$dir/rocksdb"
}

# take_turns ENGINE...: calls run_ENGINE for each number of committers, round after round.
take_turns() {
    local round threads engine
    for ((round = 1; round <= rounds; round++)); do
        for threads in "${committers[@]}"; do
            echo "round $round, $threads committers, load $(cut -d' ' -f1 /proc/loadavg)" >&2
            for engine in "$@"; do "run_$engine" "$threads"; done
        done
    done
}

# print_table WHAT ENGINE...: prints the rates of each round.
print_table() {
    local what=$1
    shift
    echo
    echo "$what/s, each round (p50 / p99 us of the last); $(nproc) cores, $(uname -r), load $(cut -d' ' -f1-3 /proc/loadavg)"
    awk -v order="$*" -v counts="${committers[*]}" '
        { rates[$1, $2] = rates[$1, $2] ? rates[$1, $2] " " $3 : $3; last[$1, $2] = $4 " / " $5 }
        END {
            n = split(order, engines, " "); m = split(counts, threads, " ")
            printf "%-9s", ""; for (j = 1; j <= m; j++) printf "%38s", threads[j] " committers"; print ""
            for (i = 1; i <= n; i++) {
                printf "%-9s", engines[i]
                for (j = 1; j <= m; j++)
                    printf "%38s", rates[engines[i], threads[j]] " (" last[engines[i], threads[j]] ")"
                print ""
            }
        }' "$results"
}
