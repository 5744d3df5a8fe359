#!/usr/bin/env bash
# Tests the benches from outside: their output and files, and that Ctrl-C leaves nothing behind. No figure is checked
# here.
set -uo pipefail
cd "$(dirname "$0")/.."
terrace=$(realpath "${TERRACE:-${CARGO_TARGET_DIR:-target}/release/terrace}")
if [ ! -x "$terrace" ]; then
    echo "there is no $terrace; build it with cargo build --release" >&2
    echo "0 passed, 1 failed"
    exit 1
fi
place=$(mktemp -d)
child=
trap 'rm -rf "$place"' EXIT
trap '[ -n "$child" ] && kill "$child" 2>/dev/null; exit 1' INT TERM
passed=0
failed=0

# case NAME STATUS: counts the case and prints its result.
case_is() {
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok      $1"
    else
        failed=$((failed + 1))
        echo "FAILED  $1"
    fi
}

# Whether each of the words is in a file.
holds() {
    local file=$1
    shift
    for word in "$@"; do
        grep -qF -- "$word" "$file" || { echo "no '$word' in $file:" >&2; cat "$file" >&2; return 1; }
    done
}

mkdir "$place/memory" "$place/disk"
"$terrace" bench persist --quick --dir "$place/memory" --data "$place/disk" --json "$place/persist.json" >"$place/persist.txt" 2>&1
status=$?
# A missed target does not fail this test. A run that misses one must print it and exit with 1.
if grep -q '^target missed: ' "$place/persist.txt"; then [ "$status" -eq 1 ]; else [ "$status" -eq 0 ]; fi
case_is "persist runs, and ends with 1 exactly if it names a missed target" $?
holds "$place/persist.json" '"bench": "persist"' '"targets"' '"pattern": "sequential write"' '"store": "clwb"' '"domain": "eadr"' \
    '"durability": "emulated"' '"real": false' '"amplification"' '"published"'
case_is "its JSON has the keys of the contract" $?
holds "$place/persist.txt" "ADR against eADR" "+50 %" "-24 %" "+14.3 %" "journal over bare ntstore"
case_is "its text has the published figures beside the measured ones" $?
[ -z "$(find "$place/memory" "$place/disk" -mindepth 1)" ]
case_is "it leaves nothing behind" $?

"$terrace" bench t4 --matrix --rounds 1 --services 4 --messages 25 --dir "$place/memory" --data "$place/disk" \
    --json "$place/matrix.json" >"$place/matrix.txt" 2>&1
case_is "the matrix runs" $?
holds "$place/matrix.txt" "journal on App Direct" "Memory Mode" "3,355 4,845" "5,399" "1.60"
case_is "it shows the published figures" $?
! grep -q "has no page cache" "$place/matrix.txt" && holds "$place/matrix.txt" "every node has a page cache" "tier pmem: modelled 12 x dcpmm100-128g;"
case_is "it prints the caches of its nodes and the stand-in for far memory" $?
holds "$place/matrix.json" '"journal_tier": "home"' '"real": true' '"cache_mode": "dram"' '"cache_mode": "dual"'
case_is "its JSON gives the tier of each journal" $?
[ -z "$(find "$place/memory" "$place/disk" -mindepth 1)" ]
case_is "it leaves nothing behind" $?

# The test does not check that the rates of a ten-second run are constant. It checks that messages and SQL worked, and
# that nothing was lost.
mkdir "$place/soak"
(cd "$place/soak" && exec "$terrace" bench soak --minutes 0.2 --rate 100 --json "$place/soak.json" >"$place/soak.txt" 2>&1)
holds "$place/soak.json" '"bench": "soak"' '"lost": 0' '"drained": true' '"stopped_well": true'
case_is "soak runs, and loses nothing" $?
! grep -qE '"transactions": 0\b' "$place/soak.json" && grep -q '"queries": [1-9]' "$place/soak.json"
case_is "SQL works beside the messages from its first sample to its last" $?
[ -z "$(find "$place/soak" -mindepth 1)" ]
case_is "it leaves nothing behind" $?

# The figures of so small a run say nothing: a missed target does not fail the test, a read that is not in the audit does.
mkdir "$place/access"
(cd "$place/access" && exec "$terrace" bench access --quick --json "$place/access.json" >"$place/access.txt" 2>&1)
status=$?
if grep -q '^target missed: ' "$place/access.txt"; then [ "$status" -eq 1 ]; else [ "$status" -eq 0 ]; fi
case_is "access runs, and ends with 1 exactly if it names a missed target" $?
holds "$place/access.json" '"bench": "access"' '"name": "sql login: unknown user, wrong password"' '"within"' '"cpu_ratio"' '"missing": 0' \
    '"extra": 0' '"late": 0' '"chain": ""'
case_is "its JSON has the pairs, the ratios, and every read in the audit" $?
[ -z "$(find "$place/access" -mindepth 1)" ]
case_is "it leaves nothing behind" $?

# A run that is ended by a signal. The node runs when its folder has a node.json.
for signal in INT TERM; do
    mkdir -p "$place/run"
    (cd "$place/run" && exec env -u TERRACE_LOG "$terrace" bench t4 --services 8 >"$place/$signal.txt" 2>&1) &
    child=$!
    until compgen -G "$place/run/terrace-t4-*/node.json" >/dev/null || ! kill -0 "$child" 2>/dev/null; do sleep 0.05; done
    node=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$place"/run/terrace-t4-*/node.json)
    kill -"$signal" "$child"
    wait "$child"
    status=$?
    child=
    [ "$status" -eq 130 ] && [ -n "$node" ] && [ -z "$(ls -A "$place/run")" ] && ! kill -0 "$node" 2>/dev/null
    case_is "t4 ended by SIG$signal exits with 130, removes its folder and ends its node" $?
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
