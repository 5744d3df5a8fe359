#!/usr/bin/env bash
# Puts the paper's example and the five published configurations through the planner: docs/sweet-spot.md has what it said.
#
#   scripts/sweet-spot.sh [FOLDER]       plans (JSON) and pages (HTML) go into FOLDER, if it is named
#
# It takes the program that TERRACE names. Traces are made by a generator with a seed below; a file is only as large as 130 MB.
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(realpath "${TERRACE:-${CARGO_TARGET_DIR:-target}/debug/terrace-plan}")
inputs=docs/sweet-spot
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${1:-}

# trace KIND OBJECTS BYTES RATE SECONDS: a trace in CSV. `random` takes objects evenly, `loop` one after the other.
trace() {
    python3 - "$@" <<'PY'
import random, sys
kind, objects, size, rate, seconds = sys.argv[1], *map(int, sys.argv[2:6])
draw = random.Random(17)
print("time,object,size,op")
for number in range(rate * seconds):
    thing = draw.randrange(objects) if kind == "random" else number % objects
    print(f"{number / rate:.6f},{thing},{size},read")
PY
}

# plan NAME ARGUMENT...: prints a plan.
plan() {
    local name=$1
    shift
    echo "== $name"
    "$program" plan "$@" || true
    echo
    if [ -n "$out" ]; then
        mkdir -p "$out"
        if "$program" plan "$@" --json >"$out/$name.json" 2>/dev/null; then
            "$program" plan page "$out/$name.json" --out "$out/$name.html" --overwrite >/dev/null
        fi
    fi
}

# The paper's example: 2 TB that are read at 2 GB/s. Objects of 1 MiB, evenly, so that no memory of this server helps. Then the same at 1.4 GB/s: with the
# 15 % that a plan adds, two devices of 1 GB/s are busy for 80 % of the time.
for rate in 1908 1335; do
    trace random 1907349 1048576 $rate 600 | "$program" profile import csv - --out "$work/example-$rate.tprof" --objects --page 1MiB --seed 1 >/dev/null
    plan example-$rate --profile "$work/example-$rate.tprof" --take-short --server $inputs/server-example.toml --media $inputs/media --prices $inputs/prices-example.toml \
        --on 2026-11-27 --data-bytes 2000000000000 --p99-read 50ms
done

# 1: HL7 messages. 614,400 of them, 5,399 each second; their size is not said: 2 KiB is taken.
messages=(--messages-per-day 194M --message-size 2KiB --retention 0.0032d)
for target in 250us 20us; do
    plan hl7-2019-$target "${messages[@]}" --p99-commit $target --server $inputs/server-t4-2019.toml --prices $inputs/prices-2019.toml --on 2019-04 --stale
    plan hl7-2026-$target "${messages[@]}" --p99-commit $target --server $inputs/server-t4-2026.toml --prices $inputs/prices-2026.toml --on 2026-11-27
done

# 2: analytical queries over 1.2 TB: read from begin to end, again and again. Objects of 1 MiB, three times.
trace loop 1144409 1048576 1600 2146 | "$program" profile import csv - --out "$work/queries.tprof" --objects --page 1MiB --seed 2 >/dev/null
queries=(--profile "$work/queries.tprof" --take-short --data-bytes 1200000000000 --p99-read 500us)
plan queries-2019 "${queries[@]}" --server $inputs/server-queries-2019.toml --prices $inputs/prices-2019.toml --on 2019-04 --stale
plan queries-2026 "${queries[@]}" --server $inputs/server-queries-2026.toml --prices $inputs/prices-2026.toml --on 2026-11-27

# 5: the journal on modules of the 200 series, with the messages of 1. No price of the 200 series is known.
plan journal-200 "${messages[@]}" --p99-commit 20us --server $inputs/server-eadr.toml
