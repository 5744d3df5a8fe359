#!/usr/bin/env bash
# Tests `terrace bench what-if` (the program terrace-what-if) with real mounts: fio, a shell command, a mirror, an export; what is refused;
# and that nothing stays mounted, also after Ctrl-C and kill -9.
#
#   scripts/test-what-if.sh
#
# It builds the program, or takes the one that TERRACE_WHAT_IF names. As root it installs the Debian packages that are missing; otherwise, or
# where FUSE or loop devices cannot be used, it skips.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
pids=()
passed=0
failed=0
end() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$dir"
}
trap end EXIT

# skip WHY: ends a script that has nothing to test.
skip() {
    echo "skipped: $1"
    echo "0 passed, 0 failed"
    exit 0
}

[ "$(id -u)" = 0 ] || skip "mounts need root"
missing=()
for pair in nbdfuse:nbdfuse fusermount3:fuse3 mkfs.ext4:e2fsprogs losetup:mount fio:fio nbdkit:nbdkit python3:python3; do
    command -v "${pair%:*}" >/dev/null || missing+=("${pair#*:}")
done
if ((${#missing[@]})); then
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 \
        || skip "the packages ${missing[*]} are missing and cannot be installed"
fi
{ [ -e /dev/fuse ] && losetup --find >/dev/null 2>&1; } || skip "this machine has no FUSE, or no loop devices"

program=${TERRACE_WHAT_IF:-}
if [ -z "$program" ]; then
    cargo build --quiet --locked --package what-if
    program=${CARGO_TARGET_DIR:-target}/debug/terrace-what-if
fi
program=$(realpath "$program")
export TMPDIR=$dir

# ran NAME COMMAND...: one case.
ran() {
    local name=$1
    shift
    if "$@" >"$dir/out" 2>&1 </dev/null; then
        echo "passed $name"
        passed=$((passed + 1))
    else
        tail -20 "$dir/out"
        echo "FAILED $name"
        failed=$((failed + 1))
    fi
}

# refused NAME TEXT COMMAND...: one case, of a command that has to fail with a text.
refused() {
    local name=$1 text=$2
    shift 2
    # shellcheck disable=SC2016
    ran "$name" bash -c 'text=$1; shift; ! "$@" >"$0" 2>&1 && grep -q -- "$text" "$0"' "$dir/refusal" "$text" "$@"
}

# holds NAME EXPRESSION: one case about the last result; `runs` is a dictionary of its places.
holds() {
    ran "$1" python3 -c "
import json
runs = {run['name']: run for run in json.load(open('$dir/result.json'))['runs']}
assert $2, json.dumps(runs, indent=1)"
}

nothing_is_left() { ! grep -q terrace-mounts /proc/self/mounts && ! losetup -a | grep -q terrace-mounts; }

measure=("$program" --quick --size 128MiB --disk "$dir" --json "$dir/result.json")
# A command that waits for its storage and prints a rate; it ends after so many writes, so a slow machine only takes longer.
cat >"$dir/work.sh" <<'EOF'
set -eu
began=$(date +%s%N)
for at in $(seq 1 "$1"); do dd if=/dev/zero of="$TERRACE_DIR/log" bs=4k count=1 seek="$at" conv=fsync,notrunc status=none; done
echo "rate $(($1 * 1000000000 / ($(date +%s%N) - began)))"
EOF

# The slow medium takes longer than the path of any machine (0.2 ms when idle, above 0.5 ms under load), so it is run; persistent memory never
# is. Their line may be bent on a busy machine.
either() { "$@" || [ $? = 1 ]; }
mkdir "$dir/media"
cat >"$dir/media/slow.toml" <<'EOF'
name = "slow"
title = "A disk for the test"
kind = "drive"
capacity_gb = 100
modules = 1
figure = [
  { key = "read_latency", value = 8000000, unit = "ns", source = "test", confidence = "k", how = "chosen" },
  { key = "write_latency", value = 8000000, unit = "ns", source = "test", confidence = "k", how = "chosen" },
  { key = "flush_latency", value = 8000000, unit = "ns", source = "test", confidence = "k", how = "chosen" },
  { key = "read_iops", value = 10000, unit = "IOPS", source = "test", confidence = "k", how = "chosen" },
  { key = "write_iops", value = 10000, unit = "IOPS", source = "test", confidence = "k", how = "chosen" },
  { key = "read_bandwidth", value = 0.2, unit = "GB/s", source = "test", confidence = "k", how = "chosen" },
  { key = "write_bandwidth", value = 0.2, unit = "GB/s", source = "test", confidence = "k", how = "chosen" },
]

[source]
test = "scripts/test-what-if.sh"
EOF
ran "a command runs on the disk, the path, a slow and a fast medium" either "${measure[@]}" \
    --media-folder "$dir/media" --media slow,dcpmm100-128g --rate '^rate ([0-9]+)' --setup "touch prepared" -- \
    sh -c 'test -e {}/prepared && sh '"$dir"'/work.sh 40'
holds "the slow medium was run, and the fast one was not" \
    "runs['slow']['how'] == 'run' and runs['dcpmm100-128g']['how'] in ('extrapolated', 'refused')"
holds "a fast medium has four runs with added times" \
    "len(runs['dcpmm100-128g']['added']) == 4 and runs['slow']['added'] == []"
holds "the slow medium is slower than the path" "runs['slow']['rate'] < runs['path']['rate']"
holds "its requests take as long as it says" \
    "all(got >= 0.5 * want for got, want in zip(runs['slow']['calibration_us']['achieved'], runs['slow']['calibration_us']['wanted']))"
holds "each unit is at least a write and a flush" "runs['path']['requests_per_unit'][2] >= 0.5"
holds "media are marked as modelled" "runs['disk']['real'] and not runs['dcpmm100-128g']['real']"
ran "nothing stays mounted" nothing_is_left

ran "fio's own output is read, on a mirror" either "${measure[@]}" --media sata-s4500+sata-s4500+optane-p4800x -- \
    fio --name=log '--filename={}/log' --size=8M --rw=randwrite --bs=4k --fdatasync=1 --runtime=1 --time_based
holds "a mirror is extrapolated" \
    "runs['sata-s4500+sata-s4500+optane-p4800x']['how'] in ('extrapolated', 'refused') and runs['disk']['unit'] == 'requests/s'"
holds "fio's latency is there" "runs['disk']['command_latency_us'] > 0"

truncate -s 128M "$dir/image"
nbdkit --unix "$dir/nbdkit.sock" --foreground file "$dir/image" &
pids+=($!)
for _ in $(seq 100); do [ -S "$dir/nbdkit.sock" ] && break; sleep 0.1; done
export_uri="nbd+unix:///?socket=$dir/nbdkit.sock"
ran "somebody's export is a medium" either "${measure[@]}" --media "$export_uri" -- sh "$dir/work.sh" 20
refused "an export with a file system is not overwritten" "not empty" "${measure[@]}" --media "$export_uri" -- true
ran "unless that is asked for" either "${measure[@]}" --media "$export_uri" --overwrite -- sh "$dir/work.sh" 20

refused "a command that fails is shown with its output" "broken pipe dream" "${measure[@]}" --media sata-s4500 -- \
    sh -c 'echo broken pipe dream; exit 3'
refused "a rate that is not printed is missed" "printed no rate" "${measure[@]}" --media sata-s4500 --rate 'x=([0-9]+)' -- true
refused "an unknown medium is named" "no-such" "${measure[@]}" --media no-such -- true
refused "a command that does not end is stopped" "--timeout" "${measure[@]}" --media sata-s4500 --timeout 1s -- sleep 600
ran "nothing stays mounted after errors" nothing_is_left

# started: a measurement whose command runs on.
started() {
    "${measure[@]}" --media sata-s4500 -- sh -c 'echo $TERRACE_MEDIUM >>'"$dir/began"'; [ $TERRACE_MEDIUM = disk ] || { echo $$ >'"$dir/sleeping"'; exec sleep 600; }' \
        >"$dir/started" 2>&1 &
    measured=$!
    pids+=("$measured")
    : >"$dir/began"
    for _ in $(seq 600); do grep -q path "$dir/began" && return 0; sleep 0.1; done
    return 1
}
interrupted() {
    started || return 1
    kill -INT "$measured"
    ! wait "$measured" && nothing_is_left
}
ran "Ctrl-C removes everything" interrupted
killed_and_again() {
    started || return 1
    kill -KILL "$measured"
    ! wait "$measured"
    kill "$(cat "$dir/sleeping")" 2>/dev/null || true
    either "${measure[@]}" --media sata-s4500 -- sh "$dir/work.sh" 5 >"$dir/again" 2>&1 && grep -q "left behind" "$dir/again" && nothing_is_left
}
ran "after kill -9 the next run removes what was left behind" killed_and_again

echo "$passed passed, $failed failed"
((failed == 0))
