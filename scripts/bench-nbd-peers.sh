#!/usr/bin/env bash
# Compares the NBD exports of this program with nbdkit and qemu-nbd on this machine, over unix sockets, with fio.
#
#   scripts/bench-nbd-peers.sh [DIR [SECONDS [ROUNDS [SIZE_MIB]]]]        default: a new folder in /dev/shm, 5 3 512
#
#   device     our server on memory: examples/serve of crate nbd, no volume            (what the protocol costs)
#   volume     a volume of one copy in DIR, checksums on                               like nbdkit file
#   mirror     a volume of three copies in DIR, checksums on, durable on all three
#   memory     nbdkit memory
#   file       nbdkit file on a file in DIR
#   qemu       qemu-nbd raw on a file in DIR
#
# Loads: 4 KiB random reads, queue depth 64, 1 and 2 jobs; 4 KiB 90 % reads with every write durable, 1 job; 4 KiB random reads at queue
# depth 1. fio's engine sends no FUA (3.33, `--sync` is not used): our volumes are durable before each acknowledgement anyway, and for
# this load nbdkit file runs with its filter `fua` (fuamode=force), and qemu-nbd with --cache=writethrough. The servers take turns, round after round; the whole export is written first. Printed are
# the medians of the rounds: requests a second, p50, p99 and p99.9, and the processor time of the server and of fio for each request,
# then the ratios to nbdkit.
#
# Without a folder everything lies in memory (/dev/shm): then the copies are emulated persistent memory. It needs the Debian packages
# fio, nbdkit and qemu-utils; as root it installs what is missing. TERRACE and SERVE name the programs (default: release builds).
set -euo pipefail

set -- "${1:-/dev/shm}" "${2:-5}" "${3:-3}" "${4:-512}"
source "$(dirname "$0")/peers-lib.sh"
size=$4
target=${CARGO_TARGET_DIR:-target}
terrace=${TERRACE:-$target/release/terrace}
serve=${SERVE:-$target/release/examples/serve}
declare -A pids
trap 'for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; wait 2>/dev/null || true; rm -rf "$dir"' EXIT

need fio fio
need nbdkit nbdkit
need qemu-nbd qemu-utils
for program in "$terrace" "$serve"; do
    [[ -x $program ]] || { echo "there is no $program: cargo build --release --bin terrace && cargo build --release -p nbd --example serve"; exit 2; }
done

input=/dev/null
start() { # name, command ...; its standard input is $input
    local name=$1
    shift
    "$@" < "$input" > "$dir/$name.log" 2>&1 &
    pids[$name]=$!
}

wait_for() { # socket
    for _ in $(seq 600); do
        [[ -S $1 ]] && return
        sleep 0.1
    done
    echo "nothing listens on $1"
    exit 1
}

declare -A uri
kind=$([[ $(stat -f -c %T "$dir") == tmpfs ]] && echo pmem || echo file)
{
    echo "data = \"$dir/data\""
    for tier in a b c; do
        printf '[tiers.%s]\nkind = "%s"\npath = "%s/%s"\n' $tier $kind "$dir" $tier
        if [[ $kind == pmem ]]; then echo 'absent = "emulate"'; fi
    done
} > "$dir/terrace.toml"
"$terrace" volume create volume --size "${size}MiB" --copy a --config "$dir/terrace.toml" > /dev/null
"$terrace" volume create mirror --size "${size}MiB" --copy a --copy b --copy c --config "$dir/terrace.toml" > /dev/null
# Each has a process of its own, so that its processor time is known.
mkdir "$dir/other"
sed "s|$dir/data|$dir/other/data|" "$dir/terrace.toml" > "$dir/other.toml"
mkdir -p "$dir/other/data/volumes"
mv "$dir/data/volumes/mirror.json" "$dir/other/data/volumes/"
start volume "$terrace" volume export volume --config "$dir/terrace.toml" --socket "$dir/volume.sock"
start mirror "$terrace" volume export mirror --config "$dir/other.toml" --socket "$dir/mirror.sock"
mkfifo "$dir/serving"
exec 9<> "$dir/serving"
input=$dir/serving start device "$serve" memory $((size << 20)) unix "$dir/device.sock" fill
truncate -s "${size}M" "$dir/file.img" "$dir/qemu.img"
start memory nbdkit -f -U "$dir/memory.sock" memory "${size}M"
start file nbdkit -f -U "$dir/file.sock" file "$dir/file.img"
start qemu qemu-nbd -f raw -t -e 16 -x qemu -k "$dir/qemu.sock" "$dir/qemu.img"
truncate -s "${size}M" "$dir/file_durable.img" "$dir/qemu_durable.img"
start file_durable nbdkit -f -U "$dir/file_durable.sock" --filter=fua file "$dir/file_durable.img" fuamode=force
start qemu_durable qemu-nbd -f raw -t -e 16 -x qemu --cache=writethrough -k "$dir/qemu_durable.sock" "$dir/qemu_durable.img"
uri[file_durable]="nbd+unix:///?socket=$dir/file_durable.sock"
uri[qemu_durable]="nbd+unix:///qemu?socket=$dir/qemu_durable.sock"
uri[device]="nbd+unix:///disk?socket=$dir/device.sock"
uri[volume]="nbd+unix:///volume?socket=$dir/volume.sock"
uri[mirror]="nbd+unix:///mirror?socket=$dir/mirror.sock"
uri[memory]="nbd+unix:///?socket=$dir/memory.sock"
uri[file]="nbd+unix:///?socket=$dir/file.sock"
uri[qemu]="nbd+unix:///qemu?socket=$dir/qemu.sock"
servers=(device volume mirror memory file qemu)
for server in "${servers[@]}" file_durable qemu_durable; do
    wait_for "$dir/$server.sock"
    fio --name=fill --ioengine=nbd --uri="${uri[$server]}" --rw=write --bs=1M --iodepth=8 --size="${size}M" > "$dir/fill.log"
done

ticks() { # of a process, user and system
    awk '{ print $14 + $15 }' "/proc/$1/stat"
}

measure() { # load, server, fio arguments ...
    local load=$1 server=$2 before after
    shift 2
    local at=$server
    if [[ $load == mix* && -n ${uri[${server}_durable]:-} ]]; then at=${server}_durable; fi
    before=$(ticks "${pids[$at]}")
    fio --name=load --ioengine=nbd --uri="${uri[$at]}" --bs=4k --size="${size}M" --norandommap --randrepeat=0 \
        --runtime="$seconds" --time_based --group_reporting --output-format=json "$@" > "$dir/out.json"
    after=$(ticks "${pids[$at]}")
    python3 - "$dir/out.json" "$load" "$server" $((after - before)) >> "$dir/results" <<'PYTHON'
import json, sys
file, load, server, ticks = sys.argv[1:]
text = open(file).read()
job = json.loads(text[text.index("{"):])["jobs"][0]
if job["error"]:
    sys.exit(f"{server}: fio reports an error")
total = sum(job[kind]["total_ios"] for kind in ("read", "write"))
rate = sum(job[kind]["iops"] for kind in ("read", "write"))
percentile = job["read"]["clat_ns"]["percentile"]
at = [percentile[name] / 1000 for name in ("50.000000", "99.000000", "99.900000")]
client = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] * 1000 / total
print(load, server, rate, *at, int(ticks) * 10000 / total, client)
PYTHON
}

for _ in $(seq "$rounds"); do
    for server in "${servers[@]}"; do measure "read64x1" "$server" --rw=randread --iodepth=64; done
    for server in "${servers[@]}"; do measure "read64x2" "$server" --rw=randread --iodepth=64 --numjobs=2; done
    for server in "${servers[@]}"; do measure "mix64x1" "$server" --rw=randrw --rwmixread=90 --iodepth=64; done
    for server in "${servers[@]}"; do measure "read1x1" "$server" --rw=randread --iodepth=1; done
done

python3 - "$dir/results" "$kind" "$size" <<'PYTHON'
import statistics, sys
rows = {}
for line in open(sys.argv[1]):
    load, server, *values = line.split()
    rows.setdefault((load, server), []).append([float(value) for value in values])
median = {key: [statistics.median(column) for column in zip(*all)] for key, all in rows.items()}
print(f"copies: {'emulated persistent memory' if sys.argv[2] == 'pmem' else 'files, power-fail-safe as the disk is'}; {sys.argv[3]} MiB exports\n")
print(f"{'load':<10} {'server':<8} {'IOPS':>9} {'p50 us':>8} {'p99 us':>8} {'p999 us':>8} {'server us':>10} {'fio us':>7}   IOPS and processor against memory, file")
for (load, server), values in median.items():
    ratios = []
    for peer in ("memory", "file"):
        other = median[(load, peer)]
        ratios.append(f"{values[0] / other[0]:.2f}x {values[4] / other[4]:.2f}x")
    print(f"{load:<10} {server:<8} {values[0]:>9.0f} {values[1]:>8.0f} {values[2]:>8.0f} {values[3]:>8.0f} {values[4]:>10.1f} {values[5]:>7.1f}   {'   '.join(ratios)}")
PYTHON
