#!/usr/bin/env bash
# Runs pgbench, PostgreSQL's own load, on the SQL service of a node on loopback: its tables are made as for PostgreSQL, its scripts run in
# the three protocols, by one client and by several, and what its transactions sum up to is compared with what they returned.
#
#   scripts/test-pgbench.sh
#
# The node is the program that TERRACE names, else target/release/terrace. pgbench is a part of the Debian package postgresql-15, and is
# not installed for this.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/node-lib.sh
. scripts/node-lib.sh

pgbench=$(command -v pgbench || ls /usr/lib/postgresql/*/bin/pgbench 2>/dev/null | tail -1)
[ -x "$pgbench" ] || skip "no pgbench"
command -v psql >/dev/null || skip "no psql"

start_node
export PGHOST=127.0.0.1 PGPORT=${address##*:} PGUSER=ann PGPASSWORD=s3cret PGDATABASE=terrace PGOPTIONS='' PGCLIENTENCODING=UTF8

cd "$dir"

# quiet COMMAND...: the command must succeed, and say nothing of errors, which pgbench goes on after.
quiet() {
    "$@" >said 2>&1 && ! grep -iE 'error|fatal|aborted' said && return
    cat said
    return 1
}

case_ "pgbench -i makes its tables" quiet "$pgbench" -i -q
case_ "a run with VACUUM and TRUNCATE before it, of 16 clients on one branch" quiet "$pgbench" -c 16 -t 5
for protocol in simple extended prepared; do
    case_ "simple updates, $protocol" quiet "$pgbench" -b simple-update -M $protocol -c 4 -t 10 -n
    case_ "queries, $protocol" quiet "$pgbench" -b select-only -M $protocol -c 4 -t 50 -n
done

case_ "pgbench -i makes them anew, with foreign keys" quiet "$pgbench" -i -q --foreign-keys
for protocol in simple extended prepared; do
    for clients in 1 8; do
        case_ "TPC-B, $protocol, $clients clients" quiet "$pgbench" -M $protocol -c $clients -j 2 -t $((80 / clients)) -n
    done
done
sums="select count(*) = 6 * 80 and sum(delta) = (select sum(abalance) from pgbench_accounts)
    and sum(delta) = (select sum(tbalance) from pgbench_tellers) and sum(delta) = (select sum(bbalance) from pgbench_branches)
    from pgbench_history"
case_ "each change is there once" says '^t$' psql -XAtqc "$sums"
tell
