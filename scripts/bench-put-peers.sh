#!/usr/bin/env bash
# Compares durable puts of the store with other engines on the disk of this machine: values of 1 KiB under random keys
# of 16 bytes, one transaction each.
#
#   scripts/bench-put-peers.sh [DIR [SECONDS [ROUNDS]]]            default: ./peers-data 5 2
#
#   store      crates/storage/store: a transaction with one put; journal, tree of pages, checkpoints in the background;
#              cache 1 GiB
#   journal    crates/storage/journal: the same bytes appended and committed, nothing else          (same program)
#   rocksdb    db_bench fillrandom sync=1: write groups with one fsync of the WAL each, two memtables of 512 MiB,
#              memtable flushes in the background
#   postgres   PostgreSQL 15, a table (k bytea primary key, v bytea), pgbench over a unix socket, prepared statements,
#              synchronous_commit=on; shared_buffers 1 GB, max_wal_size 4 GB and min_wal_size 1 GB, wal_compression off
#              (as in RocksDB). Server and client share the cores. The server makes key and value, so the 1 KiB do not
#              pass through the socket.
#
# The engines take turns, round after round, each on new files, so that a slow minute of the disk affects all of them.
# The last table is the result: puts/s of the store divided by those of each other engine in the same round, and the
# median of the rounds. Goals: with 128 committers 1.3 of RocksDB and 2 of PostgreSQL; with one committer at least 1.
#
# It needs the Debian packages rocksdb-tools and postgresql-15. As root it installs missing packages with apt-get.
# PostgreSQL runs in DIR on its own socket (as user postgres if this script runs as root), and its own pg_ctl ends it.
set -euo pipefail

source "$(dirname "$0")/peers-lib.sh"
bin=/usr/lib/postgresql/15/bin
server=

as_postgres() { # PostgreSQL refuses to run as root
    if [[ $(id -u) = 0 ]]; then runuser -u postgres -- "$@"; else "$@"; fi
}

end_postgres() {
    if [[ -n $server ]]; then
        as_postgres "$bin/pg_ctl" -D "$dir/postgres/data" -m fast -w stop > /dev/null 2>&1 || true
        server=
    fi
}
trap 'end_postgres; rm -rf "$dir"' EXIT

run_ours() { # both lines come from one program, one turn each
    "$bench" --puts "$dir/ours" "$seconds" "$1" | awk '$1 == "journal" || $1 == "store" { print $1, $3, $4, $5 }' |
        while read -r engine rate p50 p99; do note "$engine" "$1" "$rate" "$p50" "$p99"; done
}

run_postgres() {
    rm -rf "$dir/postgres" && mkdir "$dir/postgres"
    chmod 755 "$dir" && chmod 777 "$dir/postgres"
    as_postgres "$bin/initdb" -D "$dir/postgres/data" -A trust -U bench -E UTF8 --locale=C > "$dir/postgres/log"
    server=1
    as_postgres "$bin/pg_ctl" -D "$dir/postgres/data" -l "$dir/postgres/data/log" -w start -o "-k $dir/postgres \
        -c listen_addresses= -c max_connections=200 -c shared_buffers=1GB -c synchronous_commit=on -c fsync=on \
        -c max_wal_size=4GB -c min_wal_size=1GB -c checkpoint_timeout=15min" > /dev/null
    "$bin/psql" -q -h "$dir/postgres" -U bench -d postgres -c 'CREATE TABLE puts (k bytea PRIMARY KEY, v bytea)'
    cat > "$dir/postgres/put.sql" << 'SQL'
INSERT INTO puts VALUES (uuid_send(gen_random_uuid()), decode(repeat('5a', 1024), 'hex')) ON CONFLICT (k) DO UPDATE SET v = excluded.v
SQL
    (cd "$dir/postgres" && "$bin/pgbench" -n -c "$1" -j 2 -T "$seconds" -M prepared -f put.sql --log \
        -h "$dir/postgres" -U bench postgres > pgbench.out 2> pgbench.err)
    local rate p50 p99
    rate=$(awk '$1 == "tps" { printf "%.0f", $3 }' "$dir/postgres/pgbench.out")
    # Field 3 of the log is the time of a transaction in microseconds.
    read -r p50 p99 < <(cat "$dir"/postgres/pgbench_log.* | awk '{ print $3 }' | sort -n |
        awk '{ all[NR] = $1 } END { print all[int((NR + 1) * 0.5)], all[int((NR + 1) * 0.99)] }')
    note postgres "$1" "$rate" "$p50" "$p99"
    end_postgres
    rm -rf "$dir/postgres"
}

print_ratios() { # ENGINE...: the rate of the store divided by theirs in the same round
    echo
    echo "puts/s of the store divided by theirs, median of the rounds (all rounds)"
    awk -v order="$*" -v counts="${committers[*]}" '
        { round[$1, $2]++; rate[$1, $2, round[$1, $2]] = $3 }
        END {
            n = split(order, engines, " "); m = split(counts, threads, " ")
            printf "%-9s", ""; for (j = 1; j <= m; j++) printf "%28s", threads[j] " committers"; print ""
            for (i = 1; i <= n; i++) {
                printf "%-9s", engines[i]
                for (j = 1; j <= m; j++) {
                    rounds = round["store", threads[j]]; all = ""
                    for (r = 1; r <= rounds; r++) {
                        ratio[r] = rate["store", threads[j], r] / rate[engines[i], threads[j], r]
                        all = all sprintf(" %.2f", ratio[r])
                    }
                    for (a = 1; a < rounds; a++) for (b = a + 1; b <= rounds; b++)
                        if (ratio[b] < ratio[a]) { swap = ratio[a]; ratio[a] = ratio[b]; ratio[b] = swap }
                    middle = (ratio[int((rounds + 1) / 2)] + ratio[int((rounds + 2) / 2)]) / 2
                    printf "%28s", sprintf("%.2f (%s)", middle, substr(all, 2))
                }
                print ""
            }
        }' "$results"
}

need db_bench rocksdb-tools "$bin/postgres" postgresql-15
(cd "$repo" && cargo build --quiet --release -p store --example put_cost)
bench=${CARGO_TARGET_DIR:-$repo/target}/release/examples/put_cost

take_turns ours rocksdb postgres
print_table puts store journal rocksdb postgres
print_ratios journal rocksdb postgres
