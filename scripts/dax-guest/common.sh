# Functions of all boots; they run in the guest.

# Results of a case: the host counts these lines.
ok() { echo "CASE ok $*"; }
failed() { echo "CASE FAILED $*"; }

# expect TEXT COMMAND...: prints ok if the command succeeds, else FAILED and the output of the command.
expect() {
    text=$1
    shift
    if "$@" >/tmp/out 2>&1; then
        ok "$text"
    else
        failed "$text"
        sed 's/^/    /' /tmp/out
    fi
}

# Writes the settings of a node whose journal is on the mounted persistent memory, and a message.
node_settings() {
    cat >/tmp/terrace.toml <<'END'
data = "/mnt/pmem0/data"
[journal]
segment = "8MiB"
[messages]
retention = "32MiB"
[pages]
device = "16MiB"
images = "8MiB"
[tiers.pmem]
kind = "pmem"
path = "/mnt/pmem0/tier"
absent = "refuse"
[placement]
journal = "pmem"
END
    printf 'MSH|^~\\&|GUEST|WARD|TERRACE|HERE|20260101120000||ADT^A01|POWERCUT1|P|2.5\rPID|1||4711^^^DEMO^MR||Testperson^Toni\r' \
        >/tmp/message.hl7
}

# Starts the node and waits until it replies; its status is then in /tmp/status.
serve_node() {
    terrace serve --config /tmp/terrace.toml >/tmp/serve 2>&1 &
    for try in $(seq 100); do
        terrace status --data /mnt/pmem0/data >/tmp/status 2>/dev/null && break
        kill -0 $! 2>/dev/null || break
        sleep 0.2
    done
    expect "the node runs" test -s /tmp/status
    [ -s /tmp/status ] || sed 's/^/    /' /tmp/serve
}
