#!/usr/bin/env bash
# Tests volumes whose network is cut. The owner and the places of its remote copies are processes in two network namespaces, which a
# pair of veth connects:
#
#   owner 192.0.2.1   v      a, b and a place; the place is read as long as it works        three copies, two must work
#                     pair   c and a place                                                  two copies, both must work
#                     moved  b and two places, which a second owner beside the places takes over while the network is cut
#   far   192.0.2.2   the places, over TCP; the second owner
#
# The cuts are silent: no packet is answered, no connection is reset.
#
#   out    what the owner sends is lost    frames to a station that is not there (a permanent neighbour with another address)
#   in     what the places send is lost    the same on the other side
#   both   both
#   link   the interface of the places is down, for longer than the time-out of writes
#
# fio writes meanwhile and reads back what it has written: none of its requests may fail, none may take longer than the documented
# time of a copy (5 s) and what a busy machine adds, and it may read nothing old. Afterwards the copy is attached by itself within
# a minute, and once it is in sync a scrub repairs nothing: each copy has each block.
#
#   scripts/test-volume-partition.sh
#   ROUNDS=5 SEED=7 scripts/test-volume-partition.sh          five times each, for times of SEED
#   CUTS="in link" scripts/test-volume-partition.sh           these only; "takeover" is one too
#
# As root it installs the Debian packages that are missing; without root, or where network namespaces cannot be made, it skips. It
# takes minutes, most of it until a copy is in sync: with CI set and without CUTS it skips.
set -uo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
memory=
pids=()
passed=0
failed=0
seed=${SEED:-$RANDOM}
RANDOM=$seed
near=terrace-$$-owner
far=terrace-$$-far
end() {
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
    wait 2>/dev/null
    ip netns del "$near" 2>/dev/null
    ip netns del "$far" 2>/dev/null
    rm -rf "$dir" ${memory:+"$memory"}
}
trap end EXIT
trap 'exit 1' INT TERM

# skip WHY: ends a script that has nothing to test.
skip() {
    echo "skipped: $1"
    echo "0 passed, 0 failed"
    exit 0
}

[ -z "${CI:-}" ] || [ -n "${CUTS:-}" ] || skip "it takes minutes (run it without CI)"
PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
missing=()
for pair in ip:iproute2 nsenter:util-linux qemu-io:qemu-utils fio:fio; do
    command -v "${pair%:*}" >/dev/null || missing+=("${pair#*:}")
done
if ((${#missing[@]})); then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
        >/dev/null 2>&1 || skip "the packages ${missing[*]} are missing and cannot be installed"
fi
program=$(realpath -m "${TERRACE:-${CARGO_TARGET_DIR:-target}/release/terrace}")
[ -x "$program" ] || { echo "FAILED there is no $program; build it with cargo build --release"; echo "0 passed, 1 failed"; exit 1; }

OWNER=192.0.2.1
PLACES=192.0.2.2
# within NAMESPACE COMMAND...
within() {
    nsenter "--net=/run/netns/$1" "${@:2}"
}

connect() {
    ip netns add "$near" && ip netns add "$far" \
        && ip link add wire netns "$near" type veth peer name wire netns "$far" \
        && within "$near" ip address add $OWNER/30 dev wire && within "$far" ip address add $PLACES/30 dev wire \
        && within "$near" ip link set lo up && within "$far" ip link set lo up \
        && within "$near" ip link set wire up && within "$far" ip link set wire up
}
connect 2>"$dir/why" || skip "network namespaces cannot be made here: $(head -1 "$dir/why")"

# `terrace`, in the network namespace that the working directory names.
terrace=$dir/terrace
printf '#!/bin/sh\nexec nsenter --net=/run/netns/"$(cat netns)" "%s" "$@"\n' "$program" >"$terrace"
chmod +x "$terrace"
# shellcheck source=scripts/volume-lib.sh
. scripts/volume-lib.sh

# ran NAME COMMAND...: one case.
ran() {
    local name=$1
    shift
    if "$@" >"$dir/out" 2>&1 </dev/null; then
        echo "passed $name"
        passed=$((passed + 1))
    else
        tail -20 "$dir/out"
        echo "FAILED $name (SEED=$seed)"
        failed=$((failed + 1))
    fi
}

# needed NAME COMMAND...: one case without which all others are pointless.
needed() {
    local before=$failed
    ran "$@"
    ((failed == before)) && return
    tail -n 20 "$dir/export.log" "$dir/other/export.log"
    echo "$passed passed, $failed failed"
    exit 1
}

# refused TEXT COMMAND...: whether a command fails with a text.
refused() {
    local text=$1 output
    shift
    ! output=$("$@" 2>&1) || { echo "it did not fail: $output"; return 1; }
    grep -q -- "$text" <<<"$output" || { echo "$output"; return 1; }
}

# tells TEXT COMMAND...: whether a command prints a text, whatever its exit code.
tells() {
    local text=$1 output
    shift
    output=$("$@" 2>&1)
    grep -q -- "$text" <<<"$output" || { echo "$output"; return 1; }
}

# at_most LIMIT WHAT: whether a number is not larger.
at_most() {
    [ -n "$2" ] && [ "$2" -le "$1" ] || { echo "$2 is more than $1"; return 1; }
}

# A copy that does not answer is left out after 5 s (docs/volumes.md), and the others have to record that. What comes on top is for a
# machine with other work.
LATE_MS=${CI:+20000}
OUT_MS=$((5000 + ${LATE_MS:-3000}))
# A copy that is there again is attached within a minute (docs/volumes.md). How long it then takes to copy, the medium decides.
BACK_MS=$((60000 + ${LATE_MS:-3000}))
# Writes that wait for copies fail after 30 s (docs/volumes.md).
FAIL_MS=30000

now_ms() {
    echo $(($(date +%s%N) / 1000000))
}

# A station that is not there: an address of local administration.
NOBODY=02:00:00:00:00:99

# silence NAMESPACE ADDRESS: what the namespace sends to the address is lost.
silence() {
    within "$1" ip neighbour replace "$2" lladdr $NOBODY dev wire nud permanent
}

# hear NAMESPACE ADDRESS: not any more.
hear() {
    within "$1" ip neighbour del "$2" dev wire
}

# cut MODE
cut_network() {
    case $1 in
        out) silence "$near" $PLACES ;;
        in) silence "$far" $OWNER ;;
        both) silence "$near" $PLACES && silence "$far" $OWNER ;;
        link) within "$far" ip link set wire down ;;
    esac
}

# heal MODE
heal_network() {
    case $1 in
        out) hear "$near" $PLACES ;;
        in) hear "$far" $OWNER ;;
        both) hear "$near" $PLACES && hear "$far" $OWNER ;;
        link) within "$far" ip link set wire up ;;
    esac
}

io() {
    qemu-io -f raw "$@"
}

# Starts a load on the upper half of v, which reads back what it has written a moment ago. Sets $load.
start_load() {
    fio --name=load --ioengine=nbd "--uri=$(uri v)" --offset=32m --size=32m --rw=randwrite --bs=4k --iodepth=16 --rate=8m \
        --time_based --runtime=900 --verify=crc32c --verify_backlog=512 --verify_backlog_batch=256 --verify_fatal=1 \
        --randseed=$RANDOM --verify_state_save=0 --output-format=terse >"$dir/fio" 2>&1 </dev/null &
    load=$!
    pids+=("$load")
}

# Ends it: none of its requests failed, and nothing it read was wrong.
end_load() {
    kill -0 "$load" 2>/dev/null || { cat "$dir/fio"; return 1; }
    kill -INT "$load"
    wait "$load"
    grep -qi "verify:\|error" "$dir/fio" && { cat "$dir/fio"; return 1; }
    [ "$(terse 5)" = 0 ] || { cat "$dir/fio"; return 1; }
}

# terse NUMBER: a field of fio's result, version 3: 5 error, 15 and 56 the longest completion of a read and of a write in us.
terse() {
    grep '^3;' "$dir/fio" | tail -1 | cut -d';' -f"$1"
}

# longest_ms FIELD: the same in ms.
longest_ms() {
    local us
    us=$(terse "$1")
    echo $((${us%.*} / 1000))
}

# through MODE SECONDS: cuts the network, for so long after v's copy was left out, with a load on v.
through() {
    local mode=$1 pause=$2 began took number=$((RANDOM % 250 + 1)) writer most
    start_load
    sleep 2
    io "$(uri pair)" -c "write -P $number 0 64k" >/dev/null
    cut_network "$mode"
    began=$(now_ms)
    if [ "$mode" = link ]; then
        { io "$(uri pair)" -c "write -P 255 64k 4k" >"$dir/pair" 2>&1; now_ms >"$dir/pair-failed"; } &
        writer=$!
        pids+=("$writer")
    fi
    ran "$mode: the copy behind the cut is left out" until_true copy_is v 2 out
    took=$(($(now_ms) - began))
    ran "$mode: after $took ms, of $OUT_MS" at_most $OUT_MS $took
    ran "$mode: status has what to do" tells "next: .*copy 2.*terrace volume replace v 2" volume status v
    ran "$mode: status has exit code 1" bash -c '! "$@"' - env -C "$dir" "$terrace" volume status v
    ran "$mode: writes and reads go on meanwhile" io "$(uri v)" -c "write -P $number 0 1M" -c "read -P $number 0 1M"
    if [ "$mode" = link ]; then
        frozen_pair "$number" "$began" "$writer"
    fi
    sleep "$pause"
    heal_network "$mode"
    began=$(now_ms)
    most=0
    ran "$mode: the copy is attached again by itself" until_true watched_attached
    took=$(($(now_ms) - began))
    ran "$mode: after $took ms, of $BACK_MS" at_most $BACK_MS $took
    ran "$mode: it is in sync again" until_true watched_in_sync
    echo "       after $(($(now_ms) - began)) ms"
    ran "$mode: pair is in sync again" until_true all_in_sync pair
    ran "$mode: pair takes writes again" io "$(uri pair)" -c "write -P $number 128k 64k" -c "read -P $number 0 64k"
    sleep 2
    ran "$mode: fio met no error and read nothing old" end_load
    ran "$mode: the longest write took $(longest_ms 56) ms, of $OUT_MS" at_most $OUT_MS "$(longest_ms 56)"
    ran "$mode: the longest read took $(longest_ms 15) ms, of $OUT_MS" at_most $OUT_MS "$(longest_ms 15)"
    ran "$mode: what was written meanwhile is read from the copy that was away" io "$(uri v)" -c "read -P $number 0 1M"
    for volume in v pair; do
        ran "$mode: a scrub of $volume finds nothing damaged" scrubbed $volume
        ran "$mode: and repairs nothing" test "$(figure repaired <"$dir/scrub")" = 0
    done
    ran "$mode: nothing was repaired on the copy before" test "$(repairs v 2)" = 0
    ran "$mode: $most session of the owner at a time at the place: none from before the cut beside a new one" test "$most" = 1
}

# frozen_pair PATTERN BEGAN WRITER: pair has one copy of two that must work.
frozen_pair() {
    local pattern=$1 began=$2 writer=$3 took
    ran "link: pair waits for its copy" until_true tells "frozen" volume status pair
    ran "link: status of pair tells that writes wait" tells "next: writes wait" volume status pair
    ran "link: reads of pair are served" io "$(uri pair)" -c "read -P $pattern 0 64k"
    ran "link: its write still waits" kill -0 "$writer"
    wait "$writer"
    took=$(($(cat "$dir/pair-failed") - began))
    ran "link: the write on pair has failed" grep -q "write failed" "$dir/pair"
    ran "link: after $took ms, not before $FAIL_MS" test $took -ge $((FAIL_MS - 500))
    ran "link: and soon after" at_most $((FAIL_MS + ${LATE_MS:-3000})) $took
}

# sessions NAME: the sessions that the export of a place has.
sessions() {
    (cd "$dir/other" && "$terrace" volume status "$1" --json) | figure sessions
}

# The largest number of sessions that the place has had since `most` was set.
watch_sessions() {
    local found
    found=$(sessions v-far)
    ((${found:-0} <= most)) || most=$found
}

watched_attached() {
    watch_sessions
    copy_is v 2 syncing || copy_is v 2 in-sync
}

watched_in_sync() {
    watch_sessions
    all_in_sync v
}

# Another owner opens moved while the network is cut; the one before comes back.
takeover() {
    ran "takeover: content of the first owner" io "$(uri moved)" -c "write -P 17 0 1M"
    cut_network link
    mkdir -p "$dir/next/terrace-data/volumes"
    echo "$far" >"$dir/next/netns"
    printf '[tiers.b]\nkind = "file"\npath = "%s"\n' "$dir/next/b" >"$dir/next/terrace.toml"
    cp "$dir/terrace-data/volumes/moved.json" "$dir/next/terrace-data/volumes/"
    needed "takeover: a second owner opens it with two copies of three" export_from "$dir/next" moved
    second=$pid
    ran "takeover: it finds what the first one wrote, and writes" io "$(uri moved "$dir/next")" -c "read -P 17 0 1M" -c "write -P 34 0 1M"
    ran "takeover: the first owner notices that its copies are away" until_true tells "frozen" write_and_status
    heal_network link
    ran "takeover: the first owner serves nothing old any more" until_true refused "failed\|Failed" io "$(uri moved)" -c "read -P 17 0 4k"
    ran "takeover: nor does it write" refused "failed\|Failed" io "$(uri moved)" -c "write -P 18 0 4k"
    ran "takeover: its status tells of another owner" tells "another owner" volume status moved
    ran "takeover: its status has exit code 1" bash -c '! "$@"' - env -C "$dir" "$terrace" volume status moved
    ran "takeover: the second one goes on" io "$(uri moved "$dir/next")" -c "read -P 34 0 1M" -c "write -P 51 0 512k"
    ran "takeover: it is the same for the other volumes of the first one" io "$(uri v)" -c "write -P 1 0 64k"
    needed "takeover: the first owner stops" stop_serving
    needed "takeover: and starts, which takes moved back" serve
    ran "takeover: with what the second one wrote last" io "$(uri moved)" -c "read -P 51 0 512k" -c "read -P 34 512k 512k" \
        -c "write -P 68 0 4k"
    ran "takeover: now the second one is refused" until_true refused "failed\|Failed" io "$(uri moved "$dir/next")" -c "write -P 1 0 4k"
    kill_process "$second"
    # Its own copy recorded, at the cut, that one of the others had failed: none of the second owner's sets follows that one.
    ran "takeover: its own copy has to be made anew, and status says so" until_true tells "copy 0 .*replace it, so that all of it is copied" volume status moved
    ran "takeover: it is" volume replace moved 0 --wait
    ran "takeover: all copies of moved are in sync" until_true all_in_sync moved
    ran "takeover: a scrub finds nothing damaged" scrubbed moved
}

# A write makes the first owner look at its copies; nobody waits for it.
write_and_status() {
    timeout 1 qemu-io -f raw "$(uri moved)" -c "write -P 18 2M 4k"
    volume status moved
}

serve_far() {
    # shellcheck disable=SC2086
    export_from "$dir/other" $places || return 1
    other=$pid
}

echo "SEED=$seed"
make_tiers
echo "$near" >"$dir/netns"
echo "$far" >"$dir/other/netns"
printf '[volumes]\nlisten = "%s:10809"\nplaintext = true\n' $PLACES >"$dir/other/terrace.toml"
places="v-far pair-far m1 m2"
for name in $places; do
    needed "the place $name" env -C "$dir/other" "$terrace" volume create "$name" --size 128MiB --place
done
needed "a process far away exports them" serve_far
needed "create v" volume create v --size 64MiB --prefer 2 --copy a --copy b --copy "nbd://$PLACES/v-far"
needed "create pair: both copies must work" volume create pair --size 16MiB --min-copies 2 --copy c --copy "nbd://$PLACES/pair-far"
needed "create moved" volume create moved --size 32MiB --copy b --copy "nbd://$PLACES/m1" --copy "nbd://$PLACES/m2"
exported="v pair moved"
needed "the owner exports them" serve
cuts=${CUTS-out in both link takeover}
for _ in $(seq "${ROUNDS:-1}"); do
    for cut in $cuts; do
        case $cut in
            takeover) takeover ;;
            link) through link 0 ;;
            *) through "$cut" $((RANDOM % 5)) ;;
        esac
    done
done
needed "stop at the end" stop_serving
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
