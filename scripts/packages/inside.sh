#!/usr/bin/env bash
# The part of test-packages.sh that runs as root in a copy of this machine: installs, runs, upgrades, removes and purges the package.
#   inside.sh FOLDER    (with old.deb, new.deb, stand-in.py and image/, a layer of the OCI image)
set -uo pipefail
place=$1
cd "$place" || exit 1
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
unset TERRACE_LOG TERRACE_LOG_FORMAT TERRACE_KEY TERRACE_TOKEN

passed=0 failed=0
case_() {
    local name=$1
    shift
    if "$@" >case.log 2>&1; then
        passed=$((passed + 1))
        echo "ok    $name"
    else
        failed=$((failed + 1))
        echo "FAIL  $name"
        sed 's/^/      /' case.log | tail -n 40
    fi
}
# says PATTERN COMMAND...: the command must succeed and print the pattern.
says() {
    local pattern=$1
    shift
    "$@" >says.log 2>&1 && grep -q -- "$pattern" says.log || { cat says.log; return 1; }
}
# ends CODE PATTERN COMMAND...: the command must end with the code and print the pattern.
ends() {
    local code=$1 pattern=$2 status=0
    shift 2
    "$@" >says.log 2>&1 || status=$?
    [ "$status" -eq "$code" ] && grep -q -- "$pattern" says.log || { echo "exit code $status"; cat says.log; return 1; }
}
# await COMMAND...: waits for a state, at most a minute.
await() {
    local since=$SECONDS
    until "$@"; do
        [ $((SECONDS - since)) -lt 60 ] || { echo "waited a minute for: $*"; tail -n 20 serve.log 2>/dev/null; return 1; }
        sleep 0.05
    done
}
owner_and_mode() { [ "$(stat -c '%U:%G %a' "$1")" = "$2" ] || { stat -c '%n %U:%G %a' "$1"; return 1; }; }
is_installed() { [ "$(dpkg-query -W -f '${Status} ${Version}' terrace)" = "install ok installed $1" ]; }
as_user() { runuser -u terrace -- "$@"; }
message() { printf 'MSH|^~\\&|HIS|NORTH|HUB|X|20260101120000||ADT^A01^ADT_A01|%s|P|2.5\rEVN|A01|20260101\rPID|1||7^^^A||SAMPLE^ANN\rPV1|1|I|ICU^1^2\r' "$1" >message.hl7; }
send() { message "$1" && says "MSA|AA|$1" terrace message send message.hl7; }
listed() { terrace message list --data /var/lib/terrace 2>/dev/null | grep -q "$1 .*1 delivered"; }

# Loopback of this network namespace: ports are those of the settings, and nobody else's.
python3 - <<'END'
import fcntl, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    fcntl.ioctl(one, 0x8914, struct.pack("16sH14s", b"lo", 1, b""))  # SIOCSIFFLAGS, IFF_UP
END

old=$(dpkg-deb -f old.deb Version) new=$(dpkg-deb -f new.deb Version)
case_ "the package installs" dpkg -i old.deb
case_ "it is installed" is_installed "$old"
case_ "the user and its data folder are there, with owner and mode" owner_and_mode /var/lib/terrace "terrace:terrace 700"
case_ "settings are root's, and the service's to read" owner_and_mode /etc/terrace "root:terrace 750"
case_ "manual pages are there" test -s /usr/share/man/man1/terrace-message-list.1.gz
case_ "completions are read by bash" bash -c 'source /usr/share/bash-completion/completions/terrace && complete -p terrace'
case_ "the licences of all crates are there" bash -c 'zcat /usr/share/doc/terrace/licences.gz | grep -q tokio && grep -q "^tokio 1" /usr/share/doc/terrace/copyright'

case_ "init --system without rights says who may" ends 2 'sudo terrace init --system' as_user terrace init --system
case_ "init --system makes settings and a production" says '^made .*/etc/terrace/terrace.toml' terrace init --system
case_ "a second run keeps them" says '^kept .*/etc/terrace/terrace.toml' terrace init --system
case_ "the settings are not for others" owner_and_mode /etc/terrace/terrace.toml "root:terrace 640"
sed -i 's/^\[sql\]/#[sql]/' /etc/terrace/terrace.toml
# Warnings are allowed: this machine may have little memory. Problems are not.
checked() { terrace doctor --config /etc/terrace/terrace.toml "$@" || [ $? -eq 1 ]; }
case_ "doctor finds no problem" checked
json() { checked --json | python3 -c 'import json, sys; assert len(json.load(sys.stdin)["findings"]) > 10'; }
case_ "doctor prints JSON" json

# What the unit starts, as its user, by systemd's own program: it starts the node when the first connection comes.
exec_start=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/terrace.service)
runuser -u terrace -- systemd-socket-activate -E TERRACE_LOG_FORMAT=json --fdname=inbound -l 127.0.0.1:2575 $exec_start 2>serve.log &
node=$!
case_ "systemd-socket-activate listens for the node" await grep -q 'Listening on' serve.log
case_ "a client that connects before the node runs is answered once it does" send FIRST
case_ "the message is delivered" await listed FIRST
case_ "the log is JSON" bash -c 'grep "^{" serve.log | python3 -c "import json, sys; lines = [json.loads(line) for line in sys.stdin]; assert any(line[\"fields\"][\"message\"] == \"ready\" for line in lines)"'
case_ "the delivered file is below the data folder" bash -c 'ls /var/lib/terrace/archive/*.hl7'
case_ "doctor asks the node that runs" says 'production example, process' checked
echo "a long password" >password
case_ "root makes the first administrator" says 'user ann is made' terrace user add ann --administrator --password-file password --data /var/lib/terrace
case_ "the node stops" terrace stop --data /var/lib/terrace
kill "$node" 2>/dev/null
wait "$node" 2>/dev/null

# The same under a manager that keeps the socket, as systemd does with terrace.socket.
mkfifo words
: >told
chmod 711 .
chmod 666 words told
chown terrace words told
runuser -u terrace -- python3 stand-in.py 127.0.0.1 2575 inbound "$place/words" "$place/told" $exec_start 2>>serve.log &
manager=$!
told() { grep -q "$1" told; }
echo start >words
case_ "the node tells its manager that it is ready" await told '^READY=1'
case_ "it tells how it is" await told '^STATUS=production example: 1 services'
case_ "it feeds the watchdog" await told '^WATCHDOG=1'
case_ "it serves" send SECOND
echo stop >words
case_ "it says that it ends" await told '^STOPPING=1'
case_ "it ends well" await told '^exited 0'
message THIRD
terrace message send message.hl7 >third.log 2>&1 &
client=$!
case_ "a package with a higher version installs over it" dpkg -i new.deb
case_ "it is installed" is_installed "$new"
echo start >words
answered() { wait "$client" && grep -q 'MSA|AA|THIRD' third.log || { cat third.log; return 1; }; }
case_ "who connected during the upgrade saw a pause, and is answered" answered
case_ "what the old program stored is there" listed FIRST
case_ "and what came in before the upgrade" listed SECOND
case_ "settings that were changed are kept" grep -q '^#\[sql\]' /etc/terrace/terrace.toml
echo end >words
case_ "the manager ends the node" wait "$manager"
case_ "all files belong to the service's user" bash -c '[ -z "$(find /var/lib/terrace ! -user terrace)" ]'

case_ "the package is removed" dpkg -r terrace
gone() { local path; for path; do [ ! -e "$path" ] || { echo "$path is there"; return 1; }; done; }
case_ "its program is gone" gone /usr/bin/terrace /usr/lib/systemd/system/terrace.service
case_ "settings and data stay" ls /etc/terrace/terrace.toml /var/lib/terrace/journal
case_ "it is purged" dpkg -P terrace
case_ "settings are gone" gone /etc/terrace /etc/default/terrace
case_ "data stay, with their owner" owner_and_mode /var/lib/terrace "terrace:terrace 700"

# The image, as a container runs it: no other files, another user, nothing to write to but /data.
mount -t proc proc image/proc
image="chroot --userspec=65532:65532 image /usr/bin/terrace"
case_ "the program of the image runs on the image's own files" says '^terrace ' $image --version
# No function: a signal must reach the node, and not a shell that waits for it.
$image serve --config /etc/terrace/terrace.toml 2>image.log &
node=$!
case_ "it serves as its user" await grep -q ' ready ' image.log
message IMAGE
image_answers() { chroot image /usr/bin/terrace message send - <message.hl7 | grep 'MSA|AA|IMAGE'; }
case_ "it acknowledges" image_answers
kill "$node"
case_ "SIGTERM ends it" wait "$node"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
