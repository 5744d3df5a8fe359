#!/usr/bin/env bash
# The benches from outside: what they print and write, and that Ctrl-C leaves nothing behind. No figure is judged here.
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

# case NAME STATUS: counts it and says so.
case_is() {
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok      $1"
    else
        failed=$((failed + 1))
        echo "FAILED  $1"
    fi
}

# Whether each of the words stands in a file.
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
# Whether a target is met here is not judged; that a missed one is told and ends with 1 is.
if grep -q '^target missed: ' "$place/persist.txt"; then [ "$status" -eq 1 ]; else [ "$status" -eq 0 ]; fi
case_is "persist runs, and ends with 1 exactly where it names a missed target" $?
holds "$place/persist.json" '"bench": "persist"' '"targets"' '"pattern": "sequential write"' '"store": "clwb"' '"domain": "eadr"' \
    '"durability": "emulated"' '"real": false' '"amplification"' '"published"'
case_is "its JSON has the keys of the contract" $?
holds "$place/persist.txt" "ADR against eADR" "+50 %" "-24 %" "+14.3 %" "journal over bare ntstore"
case_is "its text has the published figures beside ours" $?
[ -z "$(find "$place/memory" "$place/disk" -mindepth 1)" ]
case_is "it leaves nothing behind" $?

"$terrace" bench t4 --matrix --rounds 1 --services 4 --messages 25 --dir "$place/memory" --data "$place/disk" \
    --json "$place/matrix.json" >"$place/matrix.txt" 2>&1
case_is "the matrix runs" $?
holds "$place/matrix.txt" "journal on App Direct" "Memory Mode" "3,355 4,845" "5,399" "1.60"
case_is "it shows the published figures" $?
! grep -q "has no page cache" "$place/matrix.txt" && holds "$place/matrix.txt" "every node has a page cache" "tier pmem: modelled 12 x dcpmm100-128g;"
case_is "it says what its nodes have, and what stands in for far memory" $?
holds "$place/matrix.json" '"journal_tier": "home"' '"real": true' '"cache_mode": "dram"' '"cache_mode": "dual"'
case_is "its JSON says what each journal lies on" $?
[ -z "$(find "$place/memory" "$place/disk" -mindepth 1)" ]
case_is "it leaves nothing behind" $?

# Whether a node of ten seconds is flat is not judged; that both sides of it worked, and nothing was lost, is.
mkdir "$place/soak"
(cd "$place/soak" && exec "$terrace" bench soak --minutes 0.2 --rate 100 --json "$place/soak.json" >"$place/soak.txt" 2>&1)
holds "$place/soak.json" '"bench": "soak"' '"lost": 0' '"drained": true' '"stopped_well": true'
case_is "soak runs, and loses nothing" $?
! grep -qE '"transactions": 0\b' "$place/soak.json" && grep -q '"queries": [1-9]' "$place/soak.json"
case_is "SQL works beside the messages from its first sample to its last" $?
[ -z "$(find "$place/soak" -mindepth 1)" ]
case_is "it leaves nothing behind" $?

# A run that is ended by a signal: the node runs when its folder has a node.json.
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
