#!/usr/bin/env bash
# Tests a volume as the disk of a virtual machine (QEMU, software emulation, no KVM): an export of three copies over the unix socket,
# one of them behind a write-back cache, one on a place that a second process exports. The guest makes ext4 on it, writes files and
# tells which ones it has synced (volume-guest/boot-volume.sh). Meanwhile
#
#   copy       the process of a copy is killed, and comes back
#   guest      qemu is killed in the middle of writes
#   export     in a second boot, the process that serves the volume is killed and started again; the guest goes on
#
# After each the export is copied with nbdcopy: e2fsck replays the journal and finds nothing else to mend, and every synced file is
# whole. The script installs missing Debian packages and takes the kernel of the guest from where test-dax-guest.sh keeps it. It
# never skips: it fails where it cannot run.
set -uo pipefail
cd "$(dirname "$0")/.."

passed=0
failed=0
guest_pid=
memory=
pids=()
place=$(mktemp -d)
dir=$place/volume
mkdir "$dir"
clean_up() {
    [ -z "$guest_pid" ] || kill -9 "$guest_pid" 2>/dev/null
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
    wait 2>/dev/null
    rm -rf "$place" ${memory:+"$memory"}
}
trap clean_up EXIT
trap 'exit 1' INT TERM

ok() {
    echo "ok $*"
    passed=$((passed + 1))
}
fail() {
    echo "FAILED $*"
    failed=$((failed + 1))
}
finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}
give_up() {
    fail "$*"
    [ ! -s "$dir/export.log" ] || tail -5 "$dir/export.log"
    finish
}
# expect NAME COMMAND...: one case.
expect() {
    local name=$1
    shift
    if "$@" >"$place/out" 2>&1; then
        ok "$name"
    else
        tail -20 "$place/out"
        fail "$name"
    fi
}

[ "$(uname -m)" = x86_64 ] || give_up "the guest runs programs of this machine, and it is made for x86_64"
PATH=$PATH:/usr/sbin:/sbin
guest=${TERRACE_CACHE:-$HOME/.cache/terrace}/dax-guest
# shellcheck source=scripts/dax-guest/lib.sh
. scripts/dax-guest/lib.sh
# shellcheck source=scripts/volume-lib.sh
. scripts/volume-lib.sh

terrace=$(realpath -m "${TERRACE:-${CARGO_TARGET_DIR:-target}/release/terrace}")
[ -x "$terrace" ] || give_up "there is no $terrace; build it with cargo build --release"
install_packages nbdcopy:libnbd-bin
fetch_kernel
modules_wanted="virtio_pci virtio_blk crc32c_generic crc32c_intel ext4"
pack_initramfs scripts/volume-guest "$(command -v mkfs.ext4)"

# boot ROUND [WORD]: starts a guest whose disk is the export. Its console is in $log, its monitor behind the pipes $place/monitor.*.
boot() {
    log=$place/round-$1
    : >"$log"
    rm -f "$place"/monitor.*
    mkfifo "$place/monitor.in" "$place/monitor.out"
    qemu-system-x86_64 -machine q35,accel=tcg -cpu max -smp 1 -m 512M \
        -blockdev "driver=nbd,node-name=disk,server.type=unix,server.path=$dir/terrace-data/nbd.sock,export=v,reconnect-delay=$PATIENCE" \
        -device virtio-blk-pci,drive=disk -monitor "pipe:$place/monitor" \
        -kernel "$kernel" -initrd "$place/initramfs" -append "console=ttyS0 quiet panic=-1 boot=volume round=$*" \
        -nodefaults -no-reboot -display none -serial stdio <>"$place/monitor.out" >"$log" 2>&1 &
    guest_pid=$!
    pids+=("$guest_pid")
    cat <>"$place/monitor.out" >"$place/monitor.log" &
    pids+=("$!")
}

# synced: how many files the guest reported in this boot.
synced() {
    grep -c "^SYNCED .* \.$" <(tr -d '\r' <"$log")
}

# more_synced COUNT WHEN: one case: the guest syncs so many more files.
more_synced() {
    local wanted=$(($(synced) + $1)) deadline=$((SECONDS + PATIENCE))
    until [ "$(synced)" -ge "$wanted" ]; do
        if ! kill -0 "$guest_pid" 2>/dev/null || [ $SECONDS -ge $deadline ]; then
            tail -20 "$log"
            give_up "the guest does not sync files $2"
        fi
        sleep 0.1
    done
    ok "the guest syncs files $2"
}

# monitor WORD: sends a command to qemu's monitor.
monitor() {
    echo "$1" >"$place/monitor.in"
}

vm_is() {
    monitor "info status"
    tail -2 "$place/monitor.log" | grep -q "VM status: $1"
}

# check WHEN: cases about a copy of the export, which nobody writes just now.
check() {
    local when=$1 image=$place/image files=$place/files round number bytes bad=0 checked=0
    nbdcopy "$(uri v)" "$image" || give_up "the export cannot be copied $when"
    # Preening replays the journal; anything beyond that and what a mount does as well makes it fail.
    expect "$when: e2fsck replays the journal and needs nothing else" bash -c 'e2fsck -p "$0"; [ $? -le 1 ]' "$image"
    expect "$when: the file system is clean" e2fsck -fn "$image"
    rm -rf "$files"
    mkdir "$files"
    debugfs -R "rdump / $files" "$image" >/dev/null 2>&1
    while read -r _ round number bytes _; do
        checked=$((checked + 1))
        # `head` ends `yes` by a broken pipe, which is no failure here.
        cmp -s "$files/round-$round/$number" <(yes "round $round file $number of a guest on a volume" | head -c "$bytes") && continue
        bad=$((bad + 1))
        echo "    round $round file $number of $bytes bytes is not whole: $(stat -c %s "$files/round-$round/$number" 2>&1)"
    done < <(tr -d '\r' <"$place/synced" | grep "^SYNCED .* \.$")
    if [ "$bad" = 0 ] && [ "$checked" -gt 0 ]; then
        ok "$when: all $checked files that the guest had synced are whole"
    else
        fail "$when: $bad of $checked files that the guest had synced are not whole"
    fi
    rm -rf "$files" "$image"
}

# check_paused WHEN: the same while the guest is paused, and qemu has completed all that was on its way.
check_paused() {
    monitor stop
    until_true vm_is paused || give_up "qemu does not pause the guest"
    cat "$place"/round-* >"$place/synced"
    check "$1"
    monitor cont
}

# guest_cases: counts the cases of the guest; any fault it met is one that failed.
guest_cases() {
    local lines
    lines=$(tr -d '\r' <"$log" | sed -n 's/^CASE //p')
    echo "$lines"
    passed=$((passed + $(grep -c '^ok' <<<"$lines")))
    failed=$((failed + $(grep -c '^FAILED' <<<"$lines")))
    expect "the guest met no error" bash -c '! grep -i "^FAULT\|I/O error\|EXT4-fs error\|Kernel panic" "$0"' "$log"
}

serve_place() {
    export_from "$dir/other" place || give_up "the process of a copy does not start"
    other=$pid
}

serve_volume() {
    serve || give_up "the volume is not served $1"
    ok "the volume is served $1"
}

make_tiers
exported=v
(cd "$dir/other" && "$terrace" volume create place --size 512MiB --place) >/dev/null || give_up "a place cannot be made"
serve_place
volume create v --size 256MiB --copy a,cache=pmem:16MiB --copy b,journal=pmem --copy "$(uri place "$dir/other")" >/dev/null \
    || give_up "the volume cannot be made"
serve_volume "for the first boot"

echo "boot 1: a copy is killed and comes back; qemu is killed"
boot 1 first
more_synced 5 "on a new file system"
kill_process "$other"
until_true copy_is v 2 out || give_up "the copy of a killed process is not left out"
ok "copy: it is killed and left out"
expect "copy: status has exit code 1" bash -c '! "$@"' - env -C "$dir" "$terrace" volume status v
more_synced 5 "without a copy"
check_paused "copy gone"
serve_place
until_true all_in_sync v || give_up "the copy does not come back"
ok "copy: it is in sync again"
more_synced 3 "with it"
check_paused "copy back"
more_synced 3 "after it was paused"
guest_cases
cut_power
cat "$place"/round-* >"$place/synced"
check "guest killed"

echo "boot 2: the process that serves the volume is killed"
boot 2
more_synced 5 "in a second boot"
kill_process "$exporter"
before=$(synced)
serve_volume "again after kill -9"
more_synced 5 "over the new connection, without a restart of qemu ($before before)"
check_paused "export killed"
until_true all_in_sync v || give_up "not all copies are in sync after the kill"
ok "all copies are in sync after the kill"
guest_cases
kill_process "$exporter"
cut_power
cat "$place"/round-* >"$place/synced"
serve_volume "after both were killed"
check "export and guest killed"
until_true all_in_sync v || give_up "not all copies are in sync at the end"
expect "a scrub finds nothing damaged" scrubbed v
expect "the volume is stopped" stop_serving
finish
