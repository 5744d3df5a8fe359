#!/usr/bin/env bash
# Tests the real node with hostile clients, careless statements and huge messages, while other clients send messages as
# usual. The attacks are small here; `terrace bench adversary` runs them at full size. The seed is drawn and printed:
# `--seed N` repeats the run.
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
echo "terrace bench adversary --quick --seed $seed"
if "$terrace" bench adversary --quick --seed "$seed" --data "$place/data"; then
    echo "1 passed, 0 failed"
else
    echo "0 passed, 1 failed"
    exit 1
fi
