#!/usr/bin/env bash
# A volume with one of its three copies on Ceph: a small cluster of this machine (one monitor, three OSDs, loopback only), an RBD image
# behind qemu-nbd. Checks content (fio --verify) while OSDs stop, the server of the copy is killed, and both return.
#
#   TERRACE=target/release/terrace scripts/check-volume-ceph.sh
#
# It is not part of the tests of every day: it installs Ceph from Debian (300 MB), and needs root, 4 GiB of disk and a minute or two.
set -euo pipefail
cd "$(dirname "$0")/.."

[ "$(id -u)" = 0 ] || { echo "skipped: it installs packages"; echo "0 passed, 0 failed"; exit 0; }
packages=()
for pair in ceph-mon:ceph-mon ceph-osd:ceph-osd ceph-mgr:ceph-mgr rbd:ceph-common qemu-nbd:qemu-utils fio:fio nbdinfo:libnbd-bin; do
    command -v "${pair%:*}" >/dev/null || packages+=("${pair#*:}")
done
dpkg-query -W qemu-block-extra >/dev/null 2>&1 || packages+=(qemu-block-extra)
if ((${#packages[@]})); then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null 2>&1 \
        || { echo "skipped: ${packages[*]} cannot be installed"; echo "0 passed, 0 failed"; exit 0; }
fi
terrace=$(realpath "${TERRACE:-target/release/terrace}")
[ -x "$terrace" ] || { echo "there is no $terrace: cargo build --release" >&2; exit 2; }

dir=$(mktemp -d)
export CEPH_CONF=$dir/ceph.conf
pids=()
passed=0
failed=0
stop_osd() { kill "$(cat "$dir/run/osd.$1.pid")" && while kill -0 "$(cat "$dir/run/osd.$1.pid")" 2>/dev/null; do sleep 0.1; done; }
end() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for file in "$dir"/run/*.pid; do [ -e "$file" ] && kill "$(cat "$file")" 2>/dev/null; done
    wait 2>/dev/null || true
    sleep 1
    rm -rf "$dir"
}
trap end EXIT

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

# until_true SECONDS COMMAND...: waits until it succeeds.
until_true() {
    local tries=$(($1 * 5))
    shift
    for _ in $(seq "$tries"); do "$@" >/dev/null 2>&1 && return 0; sleep 0.2; done
    return 1
}

# A cluster without authentication, which listens on loopback only and keeps three copies of each object on this disk.
cluster() {
    local id fsid
    fsid=$(cat /proc/sys/kernel/random/uuid)
    mkdir -p "$dir"/{mon,mgr/x,run,log}
    touch "$dir/keyring"
    cat >"$CEPH_CONF" <<EOF
[global]
fsid = $fsid
mon initial members = a
mon host = v2:127.0.0.1:13310
public addr = 127.0.0.1
ms bind ipv6 = false
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 3
osd pool default min size = 2
osd pool default pg num = 16
osd crush chooseleaf type = 0
run dir = $dir/run
admin socket = $dir/run/\$name.asok
pid file = $dir/run/\$name.pid
log file = $dir/log/\$name.log
keyring = $dir/keyring
mon data = $dir/mon/a
mgr data = $dir/mgr/x
osd data = $dir/osd\$id
osd class update on start = false
osd memory target = 939524096
bluestore block size = 2147483648
bluestore block wal path =
bluestore block db path =
EOF
    monmaptool --create --fsid "$fsid" --addv a '[v2:127.0.0.1:13310]' "$dir/monmap"
    ceph-mon --mkfs -i a --monmap "$dir/monmap" --keyring "$dir/keyring"
    ceph-mon -i a
    ceph-mgr -i x
    for _ in 0 1 2; do
        local uuid
        uuid=$(cat /proc/sys/kernel/random/uuid)
        id=$(ceph osd new "$uuid")
        mkdir -p "$dir/osd$id"
        ceph-osd -i "$id" --mkfs --osd-uuid "$uuid"
        ceph-osd -i "$id"
    done
    until_true 60 sh -c 'ceph osd stat | grep -q "3 up"'
    ceph osd pool create rbd 16 16 replicated
    rbd pool init rbd
    rbd create copy --size 512M
}

serve_copy() {
    qemu-nbd --persistent --shared=8 --socket="$dir/copy.sock" --format=raw --cache=none --aio=threads \
        "rbd:rbd/copy:conf=$CEPH_CONF" >"$dir/qemu-nbd.log" 2>&1 &
    served=$!
    pids+=("$served")
    until_true 30 nbdinfo --size "nbd+unix:///?socket=$dir/copy.sock"
}

volume() { "$terrace" volume "$@" --data "$dir/data" --config "$dir/terrace.toml"; }
copy_is() { volume status v | grep -Eq "^ +2 +nbd +nbd +$1 "; }
fio_verified() {
    fio --name=verify --ioengine=nbd "--uri=nbd+unix:///v?socket=$dir/data/nbd.sock" --size=96M --iodepth=16 --verify=crc32c \
        --verify_fatal=1 --verify_state_save=0 --output-format=terse "$@"
}
# A load beside what COMMAND does; its content is verified when it has ended.
under_load() {
    fio_verified --rw=randwrite --bsrange=512-64k --io_size=12m --rate=1m --fsync=16 >"$dir/fio.log" 2>&1 </dev/null &
    local load=$!
    "$@" || { kill "$load"; return 1; }
    wait "$load" || { cat "$dir/fio.log"; return 1; }
}

cat >"$dir/terrace.toml" <<EOF
[tiers.one]
kind = "file"
path = "$dir/one"
[tiers.two]
kind = "file"
path = "$dir/two"
EOF
ran "a small Ceph cluster and an RBD image" cluster
ran "qemu-nbd exports the image" serve_copy
ran "a volume with a copy on Ceph is made" volume create v --size 192MiB --copy one --copy two --copy "nbd+unix:///?socket=$dir/copy.sock"
"$terrace" volume export v --data "$dir/data" --config "$dir/terrace.toml" >"$dir/export.log" 2>&1 &
exported=$!
pids+=("$exported")
ran "it is exported" until_true 20 nbdinfo --size "nbd+unix:///v?socket=$dir/data/nbd.sock"
ran "all copies are in sync" until_true 20 copy_is in-sync
ran "the copy on Ceph is shown as unfenced" sh -c "'$terrace' volume status v --data '$dir/data' --config '$dir/terrace.toml' | grep -q unfenced"
ran "fio: content is right with three copies" fio_verified --rw=randwrite --bsrange=512-64k --io_size=16m --fsync=16

# Below the pool's min_size Ceph answers no request: the copy hangs, and is left out.
hang() { stop_osd 0 && stop_osd 1 && until_true 40 sh -c '! '"'$terrace' volume status v --data '$dir/data' --config '$dir/terrace.toml'"' | grep -Eq "^ +2 +nbd +nbd +in-sync "'; }
ran "two OSDs stop under load: the copy is left out, writes go on" under_load hang
back() { ceph-osd -i 0 && ceph-osd -i 1 && until_true 180 copy_is in-sync; }
ran "the OSDs return under load: the copy is in sync again" under_load back
gone() { kill -9 "$served" && until_true 40 sh -c '! '"'$terrace' volume status v --data '$dir/data' --config '$dir/terrace.toml'"' | grep -Eq "^ +2 +nbd +nbd +in-sync "'; }
ran "the server of the copy is killed under load: writes go on" under_load gone
again() { serve_copy && until_true 180 copy_is in-sync; }
ran "the server returns under load: the copy is in sync again" under_load again
ran "scrub finds all copies equal" volume scrub v

# The owner is killed; it opens with the copy on Ceph and one other.
kill -9 "$exported"
wait "$exported" 2>/dev/null || true
mv "$dir/one" "$dir/one.away"
"$terrace" volume export v --data "$dir/data" --config "$dir/terrace.toml" >"$dir/export.log" 2>&1 &
pids+=($!)
ran "killed, without copy 0: it opens with copy 1 and the one on Ceph" until_true 60 nbdinfo --size "nbd+unix:///v?socket=$dir/data/nbd.sock"
ran "and serves content that is verified" fio_verified --rw=randwrite --bs=4k --io_size=4m

echo "$passed passed, $failed failed"
((failed == 0))
