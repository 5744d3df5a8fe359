#!/usr/bin/env bash
# PostgreSQL's pgbench with its write-ahead log on media that are not here: `terrace bench what-if` with a server of its own in each place.
#
#   scripts/bench-what-if-postgres.sh [SECONDS] [CLIENTS] [ROUNDS] [further options of what-if ...]
#
# The tables lie in memory in all places (/dev/shm), so that only the log differs; `synchronous_commit` is on: each transaction waits for its
# log. Needs root (mounts; PostgreSQL runs as the user postgres). Installs Debian's packages where they are missing.
set -euo pipefail

seconds=${1:-10} clients=${2:-4} rounds=${3:-3}
shift $(($# < 3 ? $# : 3))
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ "$(id -u)" = 0 ] || { echo "run it as root: mounts, and PostgreSQL's own user" >&2; exit 2; }

packages=()
for pair in nbdfuse:nbdfuse fusermount3:fuse3 mkfs.ext4:e2fsprogs losetup:mount pgbench:postgresql; do
    command -v "${pair%%:*}" >/dev/null || packages+=("${pair#*:}")
done
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || packages+=(postgresql)
if [ ${#packages[@]} -gt 0 ]; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
fi
bin=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -1)

program=${TERRACE_WHAT_IF:-}
if [ -z "$program" ]; then
    cargo build --release --package what-if --manifest-path "$root/Cargo.toml"
    program=${CARGO_TARGET_DIR:-$root/target}/release/terrace-what-if
fi

# Tables and helpers of all places; postgres may enter.
area=$(mktemp -d /dev/shm/terrace-pg-XXXXXX)
chmod 755 "$area"
trap 'rm -rf "$area"' EXIT
mkdir "$area/data" "$area/socket"
chown postgres "$area/data" "$area/socket"

cat >"$area/setup.sh" <<EOF
set -eu
place=\$(printf %s "\$TERRACE_MEDIUM" | tr -c 'a-zA-Z0-9\n' _)
chmod 1777 "\$TERRACE_DIR"
data=$area/data/\$place
su postgres -s /bin/sh -c "$bin/initdb -A trust --no-sync -D \$data --waldir=\$TERRACE_DIR/wal >/dev/null"
cat >>\$data/postgresql.conf <<CONF
listen_addresses = ''
unix_socket_directories = '$area/socket'
shared_buffers = 256MB
max_wal_size = 1GB
checkpoint_timeout = 1h
wal_sync_method = fdatasync
CONF
su postgres -s /bin/sh -c "$bin/pg_ctl -s -w -D \$data -l \$data/log start"
su postgres -s /bin/sh -c "$bin/pgbench -h $area/socket -i -q -s 10 postgres" >/dev/null 2>&1
su postgres -s /bin/sh -c "$bin/pg_ctl -s -w -m fast -D \$data stop"
EOF
cat >"$area/run.sh" <<EOF
set -eu
place=\$(printf %s "\$TERRACE_MEDIUM" | tr -c 'a-zA-Z0-9\n' _)
data=$area/data/\$place
su postgres -s /bin/sh -c "$bin/pg_ctl -s -w -D \$data -l \$data/log start"
status=0
su postgres -s /bin/sh -c "$bin/pgbench -h $area/socket -n -N -c $clients -j 2 -T $seconds postgres" || status=\$?
su postgres -s /bin/sh -c "$bin/pg_ctl -s -w -m fast -D \$data stop"
exit \$status
EOF
"$program" --rounds "$rounds" --size 3GiB --setup "sh $area/setup.sh" "$@" -- sh "$area/run.sh"
