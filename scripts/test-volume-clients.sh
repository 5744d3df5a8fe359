#!/usr/bin/env bash
# Tests `terrace volume export` with the clients of others: nbdinfo, nbdcopy, qemu-io, qemu-img, fio and nbdfuse. One process exports
# two volumes of three copies at once:
#
#   plain    a behind a write-back cache, b with a journal on another tier, c alone; b is read as long as it works
#   secret   encrypted: a, a place that a second process exports, qemu-nbd
#
# After each fault the clients must find what they had written: the process killed while they write, a copy gone and back, the other
# process or qemu-nbd killed, bytes of a copy changed, a copy made anew.
#
#   scripts/test-volume-clients.sh
#
# As root it installs the Debian packages that are missing; otherwise, or without a mirror, it skips. The file system through nbdfuse
# and a loop device needs root, and is skipped alone.
set -uo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
memory=
pids=()
passed=0
failed=0
seed=${SEED:-$RANDOM}
end() {
    umount "$dir/files" 2>/dev/null
    fusermount -u "$dir/fuse" 2>/dev/null || fusermount3 -u "$dir/fuse" 2>/dev/null
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
    wait 2>/dev/null
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

PATH=$PATH:/usr/sbin:/sbin
missing=()
for pair in nbdinfo:libnbd-bin nbdfuse:nbdfuse qemu-io:qemu-utils fio:fio mkfs.ext4:e2fsprogs losetup:mount fusermount3:fuse3; do
    command -v "${pair%:*}" >/dev/null || missing+=("${pair#*:}")
done
if ((${#missing[@]})); then
    { [ "$(id -u)" = 0 ] && apt-get update -qq \
        && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
        >/dev/null 2>&1 || skip "the packages ${missing[*]} are missing and cannot be installed"
fi
terrace=$(realpath -m "${TERRACE:-${CARGO_TARGET_DIR:-target}/release/terrace}")
[ -x "$terrace" ] || { echo "FAILED there is no $terrace; build it with cargo build --release"; echo "0 passed, 1 failed"; exit 1; }
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
    echo "$passed passed, $failed failed"
    exit 1
}

# prints TEXT COMMAND...: whether the output of a command that succeeds contains a text.
prints() {
    local text=$1 output
    shift
    output=$("$@" 2>&1) || { echo "$output"; return 1; }
    grep -q -- "$text" <<<"$output" || { echo "$output"; return 1; }
}

# refused TEXT COMMAND...: whether a command fails with a text.
refused() {
    local text=$1 output
    shift
    ! output=$("$@" 2>&1) || { echo "it did not fail: $output"; return 1; }
    grep -q -- "$text" <<<"$output" || { echo "$output"; return 1; }
}

# exits CODE COMMAND...
exits() {
    local wanted=$1 code=0
    shift
    "$@" || code=$?
    [ "$code" = "$wanted" ] || { echo "exit code $code"; return 1; }
}

SIZE=$((64 << 20))
HALF=$((SIZE / 2))

# image NAME: the file with what the volume has to contain.
image() {
    echo "$dir/$1.image"
}

# fresh NAME: other random content, with a hole, written by nbdcopy; it is durable when that ends.
fresh() {
    head -c $SIZE /dev/urandom >"$(image "$1")"
    fallocate --punch-hole --offset $((SIZE / 4)) --length $((3 << 20)) "$(image "$1")"
    nbdcopy --flush --connections=4 --requests=64 "$(image "$1")" "$(uri "$1")"
}

# same NAME: whether two clients read what was written.
same() {
    nbdcopy --connections=4 "$(uri "$1")" "$dir/back" && cmp "$(image "$1")" "$dir/back" || return 1
    rm -f "$dir/back"
    qemu-img compare -f raw -F raw "$(image "$1")" "$(uri "$1")"
}

# converted NAME: qemu-img makes an image of another form of it.
converted() {
    qemu-img convert -f raw -O qcow2 "$(uri "$1")" "$dir/back.qcow2" \
        && qemu-img compare -f raw -F qcow2 "$(image "$1")" "$dir/back.qcow2" && rm -f "$dir/back.qcow2"
}

# half_same NAME: the same for the lower half only.
half_same() {
    nbdcopy --connections=4 "$(uri "$1")" "$dir/back" && cmp --bytes=$HALF "$(image "$1")" "$dir/back" || return 1
    rm -f "$dir/back"
}

# fio_verified NAME WORD...: a load on the upper half, which is read back.
fio_verified() {
    local name=$1
    shift
    fio --name=verify --ioengine=nbd "--uri=$(uri "$name")" --offset=$HALF --size=$HALF --iodepth=32 --verify=crc32c \
        --verify_fatal=1 --verify_state_save=0 --randseed="$seed" --output-format=terse "$@"
}

clients() {
    local name=$1 at
    at=$(uri "$1")
    ran "$name: nbdinfo --json: size, one export" prints "\"export-size\": $SIZE" nbdinfo --json "$at"
    ran "$name: nbdinfo --list: both exports" prints 'export="\(plain\|secret\)"' nbdinfo --list "$(uri "")"
    local can
    for can in multi-conn flush fua trim zero df; do
        ran "$name: nbdinfo --can $can" nbdinfo --can "$can" "$at"
    done
    ran "$name: nbdinfo --map: a new volume is a hole of zeros" prints "hole,zero" nbdinfo --map "$at"
    ran "$name: a new volume reads as zeros" qemu-io -f raw "$at" -c "read -P 0 0 $SIZE"
    ran "$name: nbdcopy: there" fresh "$name"
    ran "$name: nbdcopy, cmp and qemu-img: back, the same" same "$name"
    ran "$name: nbdinfo --map: there is data" prints "data" nbdinfo --map "$at"
    ran "$name: qemu-img: another image is told apart" refused "Content mismatch" qemu-img compare -f raw -F raw "$dir/terrace.toml" "$at"
    ran "$name: qemu-img: converted to qcow2" converted "$name"
    ran "$name: qemu-io: patterns, zeros, discard, FUA, unaligned" qemu-io -f raw "$at" \
        -c "write -P 0x5a 33M 1M" -c "write -f -P 0xa5 34607103 7" -c "flush" -c "read -P 0x5a 33M 4095" -c "read -P 0xa5 34607103 7" \
        -c "read -P 0x5a 34607110 511" -c "write -z 34611200 100k" -c "read -P 0 34611200 100k" -c "write -P 3 34611201 1" \
        -c "read -P 0 34611200 1" -c "read -P 3 34611201 1" -c "read -P 0 34611202 8000" -c "write -z -u 35M 64k" \
        -c "read -P 0 35M 64k" -c "write -P 9 36M 1M" -c "discard 36M 512k" -c "read -P 0 36M 512k" -c "read -P 9 37376k 512k" \
        -c "aio_write -P 1 38M 1M" -c "aio_write -f -P 2 39M 333" -c "aio_flush" -c "read -P 1 38M 1M" -c "read -P 2 39M 333"
    ran "$name: qemu-io: out of range" refused "read failed" qemu-io -f raw "$at" -c "read $SIZE 512"
    ran "$name: fio: randwrite of 512 B to 128 KiB, verified" fio_verified "$name" --rw=randwrite --bsrange=512-128k --fsync=64 --io_size=32m
    ran "$name: fio: randwrite of 4 KiB, verified while it writes" fio_verified "$name" --rw=randwrite --bs=4k --verify_backlog=256 \
        --verify_backlog_batch=64 --io_size=16m
    ran "$name: fio: randrw on two connections, verified" fio --name=two --ioengine=nbd "--uri=$at" --numjobs=2 --offset=$HALF \
        --offset_increment=16m --size=16m --rw=randrw --bs=16k --iodepth=16 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --randseed="$seed" \
        --output-format=terse
    ran "$name: the other half did not change" half_same "$name"
}

# wrote COUNT: whether qemu-io has so many acknowledgements.
wrote() {
    [ "$(grep -c "wrote 4096/4096" "$dir/acknowledged")" -ge "$1" ]
}

# kill_while_writing NAME [also]: kills the process that serves while qemu-io writes block after block, each with a pattern of its own,
# and fio the upper half; `also` kills the processes that serve copies with it. All start again. What was acknowledged must be there,
# also where nobody flushed it.
kill_while_writing() {
    local name=$1 also=${2:-} block load writer
    ran "$name: content that is flushed before the kill" fresh "$name"
    fio_verified "$name" --rw=randwrite --bs=4k --time_based --runtime=600 >"$dir/fio.log" 2>&1 </dev/null &
    load=$!
    pids+=("$load")
    for block in $(seq 0 4000); do
        echo "write -P $((block % 251 + 1)) $((block * 4096)) 4096"
    done >"$dir/commands"
    : >"$dir/acknowledged"
    qemu-io -f raw "$(uri "$name")" <"$dir/commands" >"$dir/acknowledged" 2>&1 &
    writer=$!
    pids+=("$writer")
    ran "$name: writes are acknowledged beside fio" until_true wrote 200
    if [ -n "$also" ]; then
        kill -9 "$exporter" "$other" "$qemu"
        wait "$other" "$qemu" 2>/dev/null
        needed "$name: the processes of its copies start again after kill -9" serve_copies
    fi
    kill_process "$exporter"
    wait "$writer" "$load" 2>/dev/null
    ran "$name: fio and qemu-io notice the kill" grep -q "write failed\|Failed to open\|Broken pipe\|Input/output" "$dir/acknowledged"
    needed "$name: the process starts again after kill -9" serve
    grep -o "wrote 4096/4096 bytes at offset [0-9]*" "$dir/acknowledged" | awk '{ print $NF }' \
        | while read -r offset; do echo "read -P $((offset / 4096 % 251 + 1)) $offset 4096"; done >"$dir/commands"
    ran "$name: all $(wc -l <"$dir/commands") writes that were acknowledged and not flushed are there" all_patterns "$name"
    # The lower half is the image, below its part that qemu-io wrote.
    ran "$name: what was flushed before the kill is there" upper_quarter "$name"
    ran "$name: all copies are in sync again" until_true all_in_sync "$name"
    ran "$name: a scrub finds nothing damaged" scrubbed "$name"
}

all_patterns() {
    qemu-io -f raw "$(uri "$1")" <"$dir/commands" >"$dir/patterns" 2>&1
    ! grep -i "failed" "$dir/patterns" && [ -s "$dir/commands" ] \
        && [ "$(grep -c "read 4096/4096" "$dir/patterns")" = "$(wc -l <"$dir/commands")" ]
}

upper_quarter() {
    nbdcopy "$(uri "$1")" "$dir/back" || return 1
    cmp --ignore-initial=$((4001 * 4096)) --bytes=$((HALF - 4001 * 4096)) "$(image "$1")" "$dir/back" && rm -f "$dir/back"
}

# A copy's folder is gone at a start, and comes back: it is what is read then (--prefer).
copy_away() {
    local place
    place=$(place_of plain 1)
    needed "plain: stop" stop_serving
    mv "$place" "$dir/away"
    needed "plain: it starts without copy 1" serve
    ran "plain: status tells that copy 1 is missing, exit code 1" exits 1 volume status plain
    ran "plain: status of the other volume has exit code 0" exits 0 volume status secret
    ran "plain: written while a copy is away" fresh plain
    ran "plain: the same without it" same plain
    mv "$dir/away" "$place"
    ran "plain: it is in sync again by itself" until_true all_in_sync plain
    ran "plain: status has exit code 0 again" exits 0 volume status plain
    ran "plain: the same, read from the copy that came back" same plain
    ran "plain: copy 1 was read" test "$(volume status plain --json | sed -n 's/^ *"reads": \([0-9]*\),*$/\1/p' | sed -n 2p)" -gt 0
}

# Copies of another process, and of qemu-nbd, whose processes are killed while a client writes.
remote_copies() {
    local load
    ran "secret: content" fresh secret
    fio_verified secret --rw=randwrite --bs=16k --io_size=24m --rate=1m >"$dir/fio.log" 2>&1 </dev/null &
    load=$!
    pids+=("$load")
    kill_process "$other"
    ran "secret: the copy of a process that was killed is left out" until_true copy_is secret 1 out
    ran "secret: status has exit code 1" exits 1 volume status secret
    ran "secret: reads and writes go on meanwhile" qemu-io -f raw "$(uri secret)" -c "write -P 7 0 64k" -c "read -P 7 0 64k"
    needed "secret: the other process starts again" serve_other
    ran "secret: its copy is in sync again by itself" until_true all_in_sync secret
    kill_process "$qemu"
    ran "secret: a write without qemu-nbd" qemu-io -f raw "$(uri secret)" -c "write -P 8 64k 64k"
    ran "secret: qemu-nbd's copy is left out" until_true copy_is secret 2 out
    start_qemu_nbd
    ran "secret: it is in sync again by itself" until_true all_in_sync secret
    ran "secret: fio's blocks are verified after both" wait "$load"
    ran "secret: patterns of the time without a copy" qemu-io -f raw "$(uri secret)" -c "read -P 7 0 64k" -c "read -P 8 64k 64k"
    ran "secret: a scrub finds nothing damaged" scrubbed secret
    ran "secret: content, again" fresh secret
    ran "secret: the same" same secret
    printf 'TERRACE-PLAINTEXT-%.0s' $(seq 4000) >"$dir/words"
    ran "secret: words that are known are written" nbdcopy --flush "$dir/words" "$(uri secret)"
    # shellcheck disable=SC2016
    ran "secret: no medium has them, not qemu-nbd's either" bash -c '! grep -rlaF TERRACE-PLAINTEXT "$@"' - "$dir/a" "$dir/other" "$dir/qemu.image"
    dd if="$dir/words" of="$(image secret)" conv=notrunc status=none
    ran "secret: the same, again" same secret
}

# The key file is away, and another one is in its place.
without_the_key() {
    needed "secret: stop" stop_serving
    mv "$dir/key" "$dir/key.away"
    ran "secret: without its key file it is not opened" refused "key" timeout "$PATIENCE" env -C "$dir" "$terrace" volume export secret
    head -c 64 /dev/urandom >"$dir/key"
    chmod 600 "$dir/key"
    ran "secret: nor with another one" refused "key\|secret" timeout "$PATIENCE" env -C "$dir" "$terrace" volume export secret
    mv "$dir/key.away" "$dir/key"
    needed "secret: with its own it is" serve
    ran "secret: the same, with the key" same secret
}

# damage OFFSET: changes 64 KiB of copy 1 of plain, which is not open.
damage() {
    head -c 65536 /dev/urandom | dd of="$data" bs=4096 seek=$(($1 / 4096)) conv=notrunc status=none
}

# Bytes of a copy change at rest.
bit_rot() {
    local data
    data=$(place_of plain 1)/data-0
    needed "plain: stop" stop_serving
    ran "plain: two places of a copy are overwritten" damage $((5 << 20))
    ran "plain: and one more" damage $((40 << 20))
    needed "plain: it starts" serve
    ran "plain: the damaged blocks are read from another copy" same plain
    ran "plain: and were repaired" test "$(repairs plain 1)" -ge 32
    needed "plain: stop, again" stop_serving
    ran "plain: another place" damage $((50 << 20))
    needed "plain: it starts again" serve
    ran "plain: a scrub finds nothing lost" scrubbed plain
    ran "plain: and repaired 16 blocks at least: $(figure repaired <"$dir/scrub")" test "$(figure repaired <"$dir/scrub")" -ge 16
    ran "plain: the same" same plain
    ran "plain: a second scrub repairs nothing" scrubbed plain
    ran "plain: nothing: $(figure repaired <"$dir/scrub")" test "$(figure repaired <"$dir/scrub")" = 0
}

replacing() {
    local copy
    for copy in 1 0; do
        ran "plain: copy $copy is made anew" volume replace plain "$copy" --wait
        ran "plain: all are in sync" until_true all_in_sync plain
        ran "plain: the same" same plain
    done
    ran "plain: copy 2 is made anew while fio writes" replace_under_load
    ran "plain: a scrub finds nothing damaged" scrubbed plain
    ran "plain: the half that fio did not write is the same" half_same plain
}

replace_under_load() {
    local load
    fio_verified plain --rw=randwrite --bs=8k --io_size=32m --verify_backlog=512 &
    load=$!
    volume replace plain 2 --wait && wait "$load"
}

# One block is damaged on both copies of a third volume: only that block is lost, and only until it is written.
damaged_everywhere() {
    local copy at
    needed "scarce: stop" stop_serving
    needed "scarce: it is made" volume create scarce --size 16MiB --copy b --copy c
    exported="plain secret scarce"
    needed "scarce: all three are exported" serve
    at=$(uri scarce)
    ran "scarce: content" qemu-io -f raw "$at" -c "write -P 1 0 16M" -c flush
    needed "scarce: stop again" stop_serving
    for copy in 0 1; do
        head -c 4096 /dev/urandom | dd of="$(place_of scarce $copy)/data-0" bs=4096 seek=1280 conv=notrunc status=none
    done
    needed "scarce: it starts" serve
    ran "scarce: the damaged block is an error" refused "Input/output error" qemu-io -f raw "$at" -c "read 5M 4k"
    ran "scarce: everything else is read" qemu-io -f raw "$at" -c "read -P 1 0 5M" -c "read -P 1 5124k 11260k"
    ran "scarce: the half of the other volume that fio did not write is the same" half_same plain
    ran "scarce: a scrub has exit code 1" exits 1 volume scrub scarce
    ran "scarce: a copy is made anew all the same" volume replace scarce 1 --wait
    ran "scarce: it is in sync" copy_is scarce 1 in-sync
    kill_process "$exporter"
    needed "scarce: it starts after kill -9" serve
    ran "scarce: the damaged block is an error still" refused "Input/output error" qemu-io -f raw "$at" -c "read 5M 4k"
    ran "scarce: everything else is read as before" qemu-io -f raw "$at" -c "read -P 1 0 5M" -c "read -P 1 5124k 11260k"
    ran "scarce: a write of the block ends it" qemu-io -f raw "$at" -c "write -f -P 2 5M 4k" -c "read -P 2 5M 4k"
    ran "scarce: a scrub finds nothing damaged" scrubbed scarce
    needed "scarce: stop at the end" stop_serving
    ran "scarce: delete" volume delete scarce --yes
    exported="plain secret"
    needed "the others are exported" serve
}

growing() {
    local grown=$((96 << 20))
    ran "plain: content" fresh plain
    ran "plain: it cannot grow while it is exported" refused "--stop" volume grow plain --size 96MiB
    ran "plain: the export ends" volume export plain --stop
    ran "plain: its clients are told" refused "No such file\|not found\|unknown" nbdinfo "$(uri plain)"
    ran "plain: the other export is not concerned" nbdinfo "$(uri secret)"
    ran "plain: it grows" volume grow plain --size 96MiB
    ran "plain: it is exported again" volume export plain
    ran "plain: nbdinfo --size" prints "^$grown\$" nbdinfo --size "$(uri plain)"
    ran "plain: the new part is zeros, and takes writes" qemu-io -f raw "$(uri plain)" -c "read -P 0 64M 32M" -c "write -f -P 5 80M 16M" \
        -c "read -P 5 80M 16M" -c "read -P 0 64M 16M"
    ran "plain: the old part is the same" same_beginning
    ran "plain: read-only: a write is refused" read_only
}

same_beginning() {
    nbdcopy "$(uri plain)" "$dir/back" && cmp --bytes=$SIZE "$(image plain)" "$dir/back" && rm -f "$dir/back"
}

read_only() {
    volume export plain --stop && volume export plain --read-only || return 1
    prints "is_read_only: true" nbdinfo "$(uri plain)" || return 1
    refused "read-only\|Read-only\|not permitted\|Permission\|readonly" qemu-io -f raw "$(uri plain)" -c "write -P 1 0 4k" || return 1
    volume export plain --stop && volume export plain
}

# A file system: export, nbdfuse, loop device, ext4.
file_system() {
    mkdir -p "$dir/fuse" "$dir/files"
    local disk=$dir/fuse/disk fuse
    [ "$(id -u)" = 0 ] || { echo "skipped: the file system through nbdfuse needs root"; return; }
    if [ ! -e /dev/fuse ] || [ ! -e /dev/loop-control ]; then
        echo "skipped: there is no /dev/fuse or no /dev/loop-control"
        return
    fi
    nbdfuse "$disk" "$(uri plain)" >"$dir/fuse.log" 2>&1 &
    fuse=$!
    pids+=("$fuse")
    if ! PATIENCE=30 until_true test -s "$disk"; then
        echo "skipped: nbdfuse cannot mount here: $(tail -1 "$dir/fuse.log")"
        return
    fi
    ran "nbdfuse: mkfs.ext4" mkfs.ext4 -q -F "$disk"
    if ! mount -o loop "$disk" "$dir/files" 2>"$dir/mount.log"; then
        echo "skipped: a loop device cannot be mounted here: $(tail -1 "$dir/mount.log")"
    else
        ran "nbdfuse: a file of 20 MiB is copied and synced" dd if="$(image plain)" of="$dir/files/copied" bs=1M count=20 conv=fsync
        ran "nbdfuse: a tree of files" cp -r scripts docs "$dir/files/"
        ran "nbdfuse: umount" umount "$dir/files"
        ran "nbdfuse: fsck is clean" e2fsck -fn "$disk"
        ran "nbdfuse: it is mounted again" mount -o loop "$disk" "$dir/files"
        ran "nbdfuse: the file is the same" cmp --bytes=$((20 << 20)) "$(image plain)" "$dir/files/copied"
        ran "nbdfuse: the tree is the same" diff -r docs "$dir/files/docs"
        ran "nbdfuse: umount, again" umount "$dir/files"
    fi
    fusermount3 -u "$dir/fuse" 2>/dev/null || fusermount -u "$dir/fuse"
    wait "$fuse"
    ran "nbdfuse: fsck on the export is clean" image_is_clean
}

image_is_clean() {
    nbdcopy "$(uri plain)" "$dir/back" && e2fsck -fn "$dir/back" && rm -f "$dir/back"
}

serve_other() {
    export_from "$dir/other" place || return 1
    other=$pid
}

serve_copies() {
    serve_other && start_qemu_nbd
}

start_qemu_nbd() {
    rm -f "$dir/qemu.sock"
    qemu-nbd --format=raw --persistent --shared=8 --cache=writeback --export-name=far --socket="$dir/qemu.sock" "$dir/qemu.image" \
        >"$dir/qemu.log" 2>&1 &
    qemu=$!
    pids+=("$qemu")
    until_true test -S "$dir/qemu.sock"
}

# top_fits: whether all that top shows fits into 120 columns.
top_fits() {
    volume top --times 1 --interval 1 >"$dir/top" || return 1
    awk 'length($0) > 120 { print "wide: " $0; wide = 1 } END { exit wide }' "$dir/top"
}

echo "SEED=$seed"
make_tiers
exported="plain secret"
truncate --size=256M "$dir/qemu.image"
needed "qemu-nbd runs" start_qemu_nbd
needed "a place on another data directory" env -C "$dir/other" "$terrace" volume create place --size 256MiB --place
needed "a second process exports it" serve_other
head -c 64 /dev/urandom >"$dir/key"
chmod 600 "$dir/key"
needed "create plain: a write-back cache, a journal on another tier" volume create plain --size 64MiB --prefer 1 \
    --copy a,cache=pmem:16MiB,reads --copy b,journal=pmem --copy c
needed "create secret: encrypted, a place, qemu-nbd" volume create secret --size 64MiB --key-file "$dir/key" \
    --copy a,journal=pmem --copy "$(uri place "$dir/other")" --copy "nbd+unix:///far?socket=$dir/qemu.sock"
ran "status of volumes that are not served: exit code 0" exits 0 volume status
ran "status of a volume that is not there" refused "there is no volume" volume status nowhere
needed "one process exports both" serve
ran "status: exit code 0" exits 0 volume status
ran "top: volumes, copies and tiers" prints "^a *2 of 2 " volume top --times 1 --interval 1
ran "top: copies have reads and writes of their own" prints "^copy *tier *state *reads/s .* writes/s " volume top --times 1 --interval 1
ran "top: no line is wider than 120 columns" top_fits
for name in plain secret; do
    clients "$name"
    kill_while_writing "$name"
done
kill_while_writing secret also
copy_away
remote_copies
without_the_key
ran "plain: content" fresh plain
bit_rot
replacing
damaged_everywhere
growing
file_system
needed "stop at the end" stop_serving
ran "a place: a stock client takes an epoch that is higher" nbdinfo --size "$(uri place@2251799813685249 "$dir/other")"
ran "a place: a lower one is refused from then on" refused "policy" nbdinfo --size "$(uri place@2251799813685248 "$dir/other")"
ran "delete" volume delete plain --yes
ran "its media are empty" bash -c '! find "$@" -path "*/volumes/plain/*" | grep .' - "$dir/a" "$dir/b" "$dir/c" "$memory"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
