#!/usr/bin/env bash
# Kills the real node under the load of T4 while all that it stores lies on a volume of three copies. One copy after the other fails
# and returns meanwhile: the process of a remote one is killed or stopped, the folder of a local one is removed, one is made anew
# (example t4_on_volume of crate workload). Every acknowledged message must reach each receiver, in order.
#
#   scripts/test-t4-on-volume.sh
#   ROUNDS=30 SEED=7 scripts/test-t4-on-volume.sh
#
# Without ROUNDS it kills the node twice. A round takes a minute, most of it for a copy that is brought up to date under load: with CI set
# and without ROUNDS it skips. The seed is drawn and printed.
set -uo pipefail
cd "$(dirname "$0")/.."
terrace=$(realpath -m "${TERRACE:-${CARGO_TARGET_DIR:-target}/release/terrace}")
if [ ! -x "$terrace" ]; then
    echo "there is no $terrace; build it with cargo build --release" >&2
    echo "0 passed, 1 failed"
    exit 1
fi
if [ -n "${CI:-}" ] && [ -z "${ROUNDS:-}" ]; then
    echo "skipped: it takes minutes (run it without CI)"
    echo "0 passed, 0 failed"
    exit 0
fi
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
trap 'exit 1' INT TERM

# Two copies and a place take 4 GB, reserved when they are made; while a copy is made anew, a gigabyte more.
free=$(df --output=avail -B1G "$place" | tail -1)
if ((free < 6)); then
    echo "skipped: $place has less than 6 GB of room"
    echo "0 passed, 0 failed"
    exit 0
fi
case $terrace in
    */release/terrace) profile=(--release) ;;
    *) profile=() ;;
esac
examples=$(dirname "$terrace")/examples
if ! cargo build --quiet --locked "${profile[@]}" --package workload --example t4_on_volume >"$place/log" 2>&1; then
    cat "$place/log"
    echo "FAILED the example t4_on_volume is not built"
    echo "0 passed, 1 failed"
    exit 1
fi
seed=${SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
rounds=${ROUNDS:-2}
echo "ROUNDS=$rounds SEED=$seed"
if RUST_BACKTRACE=0 "$examples/t4_on_volume" "$terrace" "$place/data" "$rounds" "$seed"; then
    echo "1 passed, 0 failed"
else
    tail -n 20 "$place/data/node.log" "$place/data/place.log"
    echo "0 passed, 1 failed"
    exit 1
fi
