#!/usr/bin/env bash
# Kills the real node while it receives messages and SQL statements. The test compares the records of the senders with
# the stored and delivered messages. `terrace verify` must report no damage before and after each start. Three rounds
# run here; `terrace bench kill` runs 50. The seed is drawn and printed: `terrace bench kill --seed N` repeats the run.
set -uo pipefail
cd "$(dirname "$0")/.."
terrace=$(realpath "${TERRACE:-${CARGO_TARGET_DIR:-target}/release/terrace}")
if [ ! -x "$terrace" ]; then
    echo "there is no $terrace; build it with cargo build --release" >&2
    echo "0 passed, 1 failed"
    exit 1
fi
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
trap 'exit 1' INT TERM

seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
echo "terrace bench kill --rounds 3 --seed $seed"
if "$terrace" bench kill --rounds 3 --seed "$seed" --data "$place/data"; then
    echo "1 passed, 0 failed"
else
    echo "0 passed, 1 failed"
    exit 1
fi
