#!/usr/bin/env bash
# Tests the first steps of a new user with the real binary: write a production, check it, run it, send a message, list
# it, kill the node, start it again, stop it. The text of each case is its expectation. README.md has the rules for
# scripts.
set -uo pipefail
cd "$(dirname "$0")/.."
terrace=$(realpath "${TERRACE:-${CARGO_TARGET_DIR:-target}/release/terrace}")
if [ ! -x "$terrace" ]; then
    echo "there is no $terrace; build it with cargo build --release" >&2
    echo "0 passed, 1 failed"
    exit 1
fi

place=$(mktemp -d)
node=
finish() {
    [ -z "$node" ] || kill -9 "$node" 2>/dev/null
    rm -rf "$place"
}
trap finish EXIT
trap 'exit 1' INT TERM
# shellcheck source=scripts/case-lib.sh
source scripts/case-lib.sh
cd "$place" || exit 1

# ends CODE PATTERN COMMAND...: the command must end with the code and print the pattern.
ends() {
    local code=$1 pattern=$2 status=0
    shift 2
    "$@" >says.log 2>&1 || status=$?
    [ "$status" -eq "$code" ] && grep -q -- "$pattern" says.log || { echo "exit code $status"; cat says.log; return 1; }
}
# await COMMAND...: waits until the command succeeds. It fails if the node has ended, or after PATIENCE seconds.
# PATIENCE is longer than any step here takes: a mistake fails the case, and the script does not hang.
PATIENCE=60
await() {
    local since=$SECONDS
    until "$@"; do
        kill -0 "$node" 2>/dev/null || { echo "the node has ended"; cat serve.log; return 1; }
        [ $((SECONDS - since)) -lt $PATIENCE ] || { echo "waited $PATIENCE s"; return 1; }
        sleep 0.05
    done
}
start() {
    "$terrace" serve --production production --data data >serve.log 2>&1 &
    node=$!
    await grep -qs "\"pid\": $node," data/node.json || return 1
    address=$(sed -n 's/.*"at": "\([^"]*\)".*/\1/p' data/node.json | head -n 1)
}
delivered() { "$terrace" message list --data data | grep -q "^ *$id .*1 delivered"; }
written() { grep -qs "Intensive care" production/archive/*.hl7; }

printf 'MSH|^~\\&|HIS|NORTH|HUB|X|20260101120000||ADT^A01^ADT_A01|C1|P|2.5\rEVN|A01|20260101\rPID|1||7^^^A||SAMPLE^ANN\rPV1|1|I|ICU^1^2\r' >message.hl7

case_ "a production to begin with is written" "$terrace" production new production
sed -i 's/127\.0\.0\.1:2575/127.0.0.1:0/' production/services/inbound.toml
case_ "it is in order" says "is in order" "$terrace" production check production
cp -r production broken
sed -i 's/lookup(wards/lookup(wardz/' broken/transforms/to-archive.hl7t
case_ "a mistake is told with file, line and column" \
    ends 2 'to-archive.hl7t:3:[0-9]*: .*wardz' "$terrace" production check broken
case_ "a node starts" start
case_ "a message is acknowledged" says 'MSA|AA|C1' "$terrace" message send message.hl7 --to "$address"
case_ "it is listed" says 'ADT^A01^ADT_A01  C1' "$terrace" message list --data data
id=$("$terrace" message list --data data --json | sed -n 's/^{"id":\([0-9]*\),.*/\1/p')
case_ "it is delivered" await delivered
case_ "its file is there" written
case_ "bodies are not shown before that is granted" ends 2 'terrace role grant message-body' "$terrace" message show "$id" --data data
case_ "who runs the node grants it" "$terrace" role grant message-body --on "service *" --to terrace_local --data data
case_ "what was received is shown" says 'PV1|1|I|ICU^1^2' "$terrace" message show "$id" --data data
case_ "what was made of it is shown" \
    says 'PV1|1|I|Intensive care^1^2' "$terrace" message show "$id" --output archive --data data
case_ "its trace names the rule" says 'admissions' "$terrace" message trace "$id" --data data
kill -9 "$node" && wait "$node" 2>/dev/null
case_ "a killed node's journal verifies" "$terrace" verify --data data
case_ "the node starts again" start
case_ "the message is still there" says "^ *$id .*1 delivered" "$terrace" message list --data data
case_ "it is sent again on request" "$terrace" message resend "$id" --data data
case_ "two are counted, one resent" says 'messages resent *1$' "$terrace" message count --data data
case_ "the node stops" "$terrace" stop --data data
wait "$node" 2>/dev/null
node=
case_ "a byte changed in its journal is found" bash -c '
    segment=$(ls data/journal/journal-* | head -n 1)
    printf "\377" | dd of="$segment" bs=1 seek=8300 conv=notrunc status=none
    "$0" verify --data data; [ $? -eq 1 ]' "$terrace"

# A demo stays up after its measurement. Its data are in this folder or, if that is in memory, in the temporary one.
stays() { grep -q 'stays up until' demo.log; }
nothing_left() { ! ls -d terrace-* tmp/* 2>/dev/null; }
mkdir tmp
TMPDIR=$PWD/tmp "$terrace" demo >demo.log 2>&1 &
demo=$! node=$!
case_ "a demo stays up" await stays
kill -TERM "$demo"
case_ "SIGTERM ends it" timeout 30 tail --pid="$demo" -f /dev/null
case_ "it reports success" wait "$demo"
case_ "it removes its data" nothing_left
node=

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
