#!/usr/bin/env bash
# PostgreSQL's own load, pgbench, on a node and on PostgreSQL in turns: TPC-B, simple updates and queries by key, at 1, 16 and 64 clients.
#
#   scripts/bench-pgbench-peers.sh [DIR] [SECONDS] [ROUNDS]
#
# Both write in DIR (default peers-data), on the disk that is to be compared, and acknowledge only what is flushed. Both are asked over TCP on
# loopback in the protocol PROTOCOL (simple, extended or prepared; default simple, as pgbench's own), with tables of SCALE (default 10).
# PostgreSQL has its defaults but for shared_buffers (256 MB, as the node's cache) and a log that needs no checkpoint meanwhile.
# Printed for each load: transactions a second (the median of the rounds, and each round's ratio), p50, p99 and p999 of the latency, and the
# processor time of the server for each transaction; pgbench itself shares the processors. Installs Debian's PostgreSQL where it is missing;
# run as root, it runs as the user postgres.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
terrace=$(realpath -m "${TERRACE:-${CARGO_TARGET_DIR:-$here/target}/release/terrace}")
[ -x "$terrace" ] || { echo "there is no $terrace; build it with cargo build --release" >&2; exit 1; }
# shellcheck source=scripts/peers-lib.sh
. "$here/scripts/peers-lib.sh"
compgen -G '/usr/lib/postgresql/*/bin/pgbench' >/dev/null || need no-pgbench postgresql
bin=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -1)
scale=${SCALE:-10} protocol=${PROTOCOL:-simple} clients=(${CLIENTS:-1 16 64})
export PGHOST=127.0.0.1 PGUSER=ann PGPASSWORD=s3cret PGDATABASE=terrace PGCLIENTENCODING=UTF8 LC_ALL=C

node= postmaster=
end() {
    [ -z "$node" ] || { kill "$node" 2>/dev/null && wait "$node" 2>/dev/null; } || true
    [ -z "$postmaster" ] || as_postgres "$bin/pg_ctl" -s -m immediate -D "$dir/postgres" stop || true
    rm -rf "$dir"
}
trap end EXIT

# PostgreSQL refuses to run as root.
as_postgres() { if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

start_postgres() {
    mkdir "$dir/postgres"
    if [ "$(id -u)" = 0 ]; then
        # The server enters the folder through those above it.
        chmod 755 "$dir"
        chown postgres "$dir/postgres"
    fi
    echo s3cret >"$dir/password"
    chmod 644 "$dir/password"
    as_postgres "$bin/initdb" -U ann -A scram-sha-256 --pwfile="$dir/password" -D "$dir/postgres" >/dev/null
    postgres_port=$(free_port)
    {
        printf "listen_addresses = '127.0.0.1'\nport = %s\nunix_socket_directories = ''\n" "$postgres_port"
        printf 'shared_buffers = 256MB\nmax_wal_size = 4GB\ncheckpoint_timeout = 1h\nmax_connections = 200\n'
    } | as_postgres tee -a "$dir/postgres/postgresql.conf" >/dev/null
    as_postgres "$bin/pg_ctl" -s -w -D "$dir/postgres" -l "$dir/postgres/log" start
    postmaster=$(head -1 "$dir/postgres/postmaster.pid")
    PGPORT=$postgres_port PGDATABASE=postgres "$bin/createdb" terrace
}

start_terrace() {
    mkdir "$dir/terrace"
    printf 'listen = "127.0.0.1:0"\n[sql]\nlisten = "127.0.0.1:0"\nconnections = 200\nadministrators = ["ann"]\n[sql.users]\nann = "%s"\n' \
        "$(echo s3cret | "$terrace" sql verifier)" >"$dir/terrace/terrace.toml"
    (cd "$dir/terrace" && exec "$terrace" serve) 2>"$dir/terrace/log" &
    node=$!
    for _ in $(seq 300); do
        grep -q ' ready ' "$dir/terrace/log" && break
        sleep 0.1
    done
    terrace_port=$(sed -n 's/.* sql address=.*://p' "$dir/terrace/log")
    [ -n "$terrace_port" ] || { cat "$dir/terrace/log" >&2; exit 1; }
}

# ticks PID: processor time of a process, of those of its children that ended, and of those that run, in ticks.
ticks() {
    local sum=0 one
    for one in "$1" $(pgrep -P "$1" || true); do
        [ -r "/proc/$one/stat" ] || continue
        # Fields 14 and 15 of proc(5), counted behind the name; 16 and 17 are those of the children that ended.
        sum=$((sum + $(sed 's/.*) //' "/proc/$one/stat" | awk '{ print $12 + $13 + $14 + $15 }')))
    done
    echo "$sum"
}

# one ENGINE LOAD CLIENTS: one run; adds `ENGINE LOAD CLIENTS RATE P50 P99 P999 US` to the results, latencies and processor time in us.
one() {
    local engine=$1 load=$2 count=$3 port server before after
    if [ "$engine" = terrace ]; then port=$terrace_port server=$node; else port=$postgres_port server=$postmaster; fi
    rm -f "$dir"/latency.*
    before=$(ticks "$server")
    if ! PGPORT=$port "$bin/pgbench" -n -b "$load" -M "$protocol" -c "$count" -j 2 -T "$seconds" -l --log-prefix="$dir/latency" \
        --random-seed=7 >"$dir/said" 2>&1 || grep -iE 'error|fatal|aborted' "$dir/said" >&2; then
        cat "$dir/said" >&2
        exit 1
    fi
    # The backends of PostgreSQL end after their clients.
    sleep 0.3
    after=$(ticks "$server")
    # A line of the log: client, transaction, latency in us ...
    cat "$dir"/latency.* | awk '{ print $3 }' | sort -n >"$dir/sorted"
    awk -v what="$engine $load $count" -v seconds="$seconds" -v cpu=$(((after - before) * 1000000 / $(getconf CLK_TCK))) '
        { latency[NR] = $1 }
        function at(share) { return latency[int((NR - 1) * share) + 1] }
        END { printf "%s %.0f %d %d %d %.1f\n", what, NR / seconds, at(0.5), at(0.99), at(0.999), cpu / NR }' "$dir/sorted" |
        tee -a "$results" >&2
}

start_postgres
start_terrace
for port in "$terrace_port" "$postgres_port"; do
    PGPORT=$port "$bin/pgbench" -i -q -s "$scale" >"$dir/said" 2>&1 || { cat "$dir/said" >&2; exit 1; }
done
for ((round = 1; round <= rounds; round++)); do
    echo "round $round of $rounds, load $(cut -d' ' -f1 /proc/loadavg)" >&2
    for load in tpcb-like simple-update select-only; do
        for count in "${clients[@]}"; do
            # Who is first changes from round to round.
            if ((round % 2)); then order="terrace postgres"; else order="postgres terrace"; fi
            for engine in $order; do one "$engine" "$load" "$count"; done
        done
    done
done

echo
echo "pgbench of scale $scale, protocol $protocol, $rounds rounds of $seconds s in turns; $("$bin/postgres" --version); $(nproc) cores, $(uname -r)"
python3 - "$results" <<'TABLE'
import statistics, sys
runs = {}
for line in open(sys.argv[1]):
    engine, load, clients, *figures = line.split()
    runs.setdefault((load, int(clients)), {}).setdefault(engine, []).append([float(figure) for figure in figures])
print(f"{'load':<14}{'clients':>7}  {'transactions/s':>17} {'ratio (of each round)':<28}{'p50 us':>15}{'p99 us':>17}{'p999 us':>17}{'server us each':>17}  ratio")
for (load, clients), engines in runs.items():
    ours, theirs = engines["terrace"], engines["postgres"]
    def median(of, column): return statistics.median(run[column] for run in of)
    def pair(column, digits=0): return f"{median(ours, column):.{digits}f} / {median(theirs, column):.{digits}f}"
    each = ", ".join(f"{a[0] / b[0]:.2f}" for a, b in zip(ours, theirs))
    ratio = f"{median(ours, 0) / median(theirs, 0):.2f} ({each})"
    print(f"{load:<14}{clients:>7}  {pair(0):>17} {ratio:<28}{pair(1):>15}{pair(2):>17}{pair(3):>17}{pair(4):>17}  {median(ours, 4) / median(theirs, 4):.2f}")
print("terrace / postgres")
TABLE
