#!/usr/bin/env bash
# Tests NBD with the clients and servers of others, over unix sockets: nbdinfo, nbdcopy, qemu-io and fio against our server, and our
# client against nbdkit (also behind filters that delay, fail and require large blocks, and killed in between) and qemu-nbd.
#
#   scripts/test-nbd-clients.sh
#
# It builds the examples serve and use of crates/services/nbd, or takes them from the folder that NBD_EXAMPLES names. As root it
# installs the Debian packages that are missing; otherwise, or without a mirror, it skips.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
pids=()
passed=0
failed=0
seed=${SEED:-$RANDOM}
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

missing=()
for pair in nbdkit:nbdkit nbdinfo:libnbd-bin qemu-io:qemu-utils fio:fio; do
    command -v "${pair%:*}" >/dev/null || missing+=("${pair#*:}")
done
if ((${#missing[@]})); then
    { [ "$(id -u)" = 0 ] && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } \
        >/dev/null 2>&1 || skip "the packages ${missing[*]} are missing and cannot be installed"
fi

if [ -z "${NBD_EXAMPLES:-}" ]; then
    cargo build --quiet --locked --package nbd --examples
    NBD_EXAMPLES=${CARGO_TARGET_DIR:-target}/debug/examples
fi
serve=$(realpath "$NBD_EXAMPLES/serve")
use=$(realpath "$NBD_EXAMPLES/use")

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

# refused NAME TEXT COMMAND...: one case, of a command that has to fail with a text.
refused() {
    local name=$1 text=$2
    shift 2
    # shellcheck disable=SC2016
    ran "$name" bash -c 'text=$1; shift; ! "$@" >"$0" 2>&1 && grep -q -- "$text" "$0"' "$dir/refusal" "$text" "$@"
}

# await SOCKET: waits, at most 30 s, until somebody listens there.
await() {
    for _ in $(seq 300); do
        [ -S "$1" ] && return
        sleep 0.1
    done
    echo "nobody listens on $1" >&2
    return 1
}

# start SOCKET COMMAND...: starts a server in the background. Sets `pid`.
start() {
    local socket=$1
    shift
    rm -f "$socket"
    # Our own server runs until its input ends.
    mkfifo "$socket.input" 2>/dev/null || true
    "$@" <>"$socket.input" >"$socket.log" 2>&1 &
    pid=$!
    pids+=("$pid")
    await "$socket"
}

# uri SOCKET [NAME]
uri() {
    echo "nbd+unix:///${2:-}?socket=$1"
}

server_with_clients() {
    local ours=$dir/ours
    start "$ours" "$serve" memory $((64 << 20)) unix "$ours"
    local at
    at=$(uri "$ours" disk)
    ran "nbdinfo: our export" bash -c 'nbdinfo --json "$0" | grep -q "\"export-size\": 67108864"' "$at"
    ran "nbdinfo: list" bash -c 'nbdinfo --list "$0" | grep -q "export=.disk.:"' "$(uri "$ours")"
    local can
    for can in flush fua trim zero fast-zero df multi-conn cache "structured-reply"; do
        ran "nbdinfo: can $can" nbdinfo --can "$can" "$at"
    done
    refused "nbdinfo: no such export" "No such file or directory for export" nbdinfo "$(uri "$ours" other)"
    ran "qemu-io: patterns, zeros, discard, flush" qemu-io -f raw "$at" -c "write -P 0x5a 0 1M" -c "write -f -P 0xa5 4095 7" \
        -c "flush" -c "read -P 0x5a 0 4095" -c "read -P 0xa5 4095 7" -c "write -z 8k 100k" -c "read -P 0 8k 100k" \
        -c "write -z -u 300k 64k" -c "discard 512k 64k" -c "read -P 0 512k 64k" -c "aio_write -P 1 2M 1M" -c "aio_flush"
    ran "qemu-io: out of range" bash -c 'qemu-io -f raw "$0" -c "read 64M 512" 2>&1 | grep -q "read failed"' "$at"
    ran "nbdinfo: map" bash -c 'nbdinfo --map "$0" | grep -q "hole,zero\|data"' "$at"
    head -c $((64 << 20)) /dev/urandom >"$dir/random"
    ran "nbdcopy: there" nbdcopy --connections=4 --requests=64 "$dir/random" "$at"
    ran "nbdcopy: back" nbdcopy "$at" "$dir/back"
    ran "nbdcopy: the same" cmp "$dir/random" "$dir/back"
    ran "qemu-img: compare" qemu-img compare -f raw -F raw "$dir/random" "$at"
    rm -f "$dir/back"
    local mode
    for mode in randwrite write randrw; do
        ran "fio: $mode, verified" fio --name=verify --ioengine=nbd "--uri=$at" --rw="$mode" --bsrange=512-128k --iodepth=32 \
            --size=64m --io_size=64m --verify=crc32c --verify_fatal=1 --verify_state_save=0 --fsync=64 --randseed="$seed" --output-format=terse
    done
    ran "our client and our server" "$use" "$at" check "$seed" 400
    kill "$pid"
    wait "$pid" 2>/dev/null || true
}

# against NAME SOCKET [WORD]...: our client's check against the server at a socket.
against() {
    local name=$1 socket=$2
    shift 2
    ran "our client and $name" "$use" "$(uri "$socket")" "$@" check "$seed" 250
    ran "our client and $name: facts, extents" "$use" "$(uri "$socket")" info
    kill "$pid"
    wait "$pid" 2>/dev/null || true
}

clients_with_nbdkit() {
    local s=$dir/nbdkit
    cat >"$dir/plain.sh" <<'PLUGIN'
case $1 in
    get_size) echo 1048576 ;;
    pread) dd if="$tmpdir/d" iflag=skip_bytes,count_bytes skip="$4" count="$3" status=none ;;
    pwrite) dd of="$tmpdir/d" oflag=seek_bytes seek="$4" conv=notrunc status=none ;;
    can_write) exit 0 ;;
    get_ready) truncate --size=1M "$tmpdir/d" ;;
    *) exit 2 ;;
esac
PLUGIN
    chmod +x "$dir/plain.sh"
    kit() { start "$s" nbdkit --foreground --exit-with-parent --unix "$s" "$@"; }
    kit memory 32M
    against "nbdkit memory" "$s"
    truncate --size=32M "$dir/image"
    kit file "$dir/image"
    against "nbdkit file" "$s"
    kit --no-sr memory 32M
    against "nbdkit without structured replies" "$s"
    kit --mask-handshake=1 memory 32M
    against "nbdkit without NO_ZEROES" "$s"
    kit --filter=delay memory 32M rdelay=3ms wdelay=3ms
    against "nbdkit that delays" "$s"
    kit --filter=error memory 32M error-pread-rate=20% error=EIO
    against "nbdkit whose reads fail" "$s" retry-reads
    kit --filter=blocksize-policy memory 32M blocksize-minimum=65536 blocksize-preferred=65536 blocksize-maximum=1M \
        blocksize-error-policy=error
    against "nbdkit of blocks of 64 KiB" "$s"
    kit --filter=nozero memory 32M
    against "nbdkit without zeros" "$s"
    kit --filter=fua memory 32M
    against "nbdkit without FUA" "$s"
    kit sh "$dir/plain.sh"
    against "nbdkit without flush, FUA and zeros" "$s"
    kit --filter=noextents memory 32M
    against "nbdkit without extents" "$s"
    kit --filter=error memory 32M error-pwrite=ENOSPC error-pwrite-rate=100%
    refused "our client and nbdkit without space" "no space left\|refuses changes after a failed write" "$use" "$(uri "$s")" check "$seed" 50
    kill "$pid"
    wait "$pid" 2>/dev/null || true
    kit --readonly memory 32M
    refused "our client and nbdkit that is read-only" "read-only" "$use" "$(uri "$s")" check "$seed" 50
    kill "$pid"
    wait "$pid" 2>/dev/null || true
}

# A server on a file is killed and started again, three times, while our client checks it; and stopped for longer than a request may
# take.
clients_with_a_server_that_dies() {
    local s=$dir/dies
    truncate --size=32M "$dir/dies.image"
    kit() { start "$s" nbdkit --foreground --unix "$s" --filter=delay file "$dir/dies.image" wdelay=1ms rdelay=1ms; }
    kit
    "$use" "$(uri "$s")" check "$seed" 2000 >"$dir/dies.out" 2>&1 &
    local client=$!
    pids+=("$client")
    for _ in 1 2 3; do
        sleep 0.5
        kill -9 "$pid"
        wait "$pid" 2>/dev/null || true
        kit
    done
    ran "our client and a server that is killed three times" bash -c 'tail --pid="$0" -f /dev/null; grep "reconnects: [1-9]" "$1"' \
        "$client" "$dir/dies.out"
    kill -9 "$pid"
    wait "$pid" 2>/dev/null || true
    # Our own server: nbdkit 1.32 sometimes ends by an assertion when it finds its replies unwanted.
    start "$s" "$serve" memory $((32 << 20)) unix "$s"
    "$use" "$(uri "$s" disk)" request-timeout 700 reconnect-for 20000 check "$seed" 2000 >"$dir/hangs.out" 2>&1 &
    client=$!
    pids+=("$client")
    sleep 0.3
    kill -STOP "$pid"
    sleep 1.5
    kill -CONT "$pid"
    ran "our client and a server that hangs" bash -c 'tail --pid="$0" -f /dev/null; grep "reconnects: [1-9]" "$1"' "$client" \
        "$dir/hangs.out"
    kill -9 "$pid"
    wait "$pid" 2>/dev/null || true
}

clients_with_qemu() {
    local s=$dir/qemu
    truncate --size=32M "$dir/qemu.image"
    start "$s" qemu-nbd --format=raw --persistent --shared=4 --cache=writeback --socket="$s" "$dir/qemu.image"
    against "qemu-nbd of a raw file" "$s"
    qemu-img create -q -f qcow2 "$dir/qemu.qcow2" 32M
    start "$s" qemu-nbd --format=qcow2 --persistent --discard=unmap --socket="$s" "$dir/qemu.qcow2"
    against "qemu-nbd of a qcow2 file" "$s"
    start "$s" qemu-nbd --format=raw --persistent --export-name=vol@41 --socket="$s" "$dir/qemu.image"
    ran "our client and qemu-nbd: a name that only looks like an epoch" bash -c '"$0" "$1" info | grep -q "fenced false"' "$use" \
        "$(uri "$s" vol@41)"
    refused "our client and qemu-nbd: no epochs" "does not confirm epochs" "$use" "$(uri "$s" vol@41)" raise 42
    kill "$pid"
    wait "$pid" 2>/dev/null || true
}

echo "SEED=$seed"
server_with_clients
clients_with_nbdkit
clients_with_a_server_that_dies
clients_with_qemu
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
