# Functions of the scripts that test the services of a node with third-party clients. This file is sourced in the
# root of the checkout, not run. It sets `terrace` (the program), `cache` (the folder of downloads: TERRACE_CACHE, else
# $XDG_CACHE_HOME/terrace, else ~/.cache/terrace) and `dir` (a folder that is removed at the end, after the node is
# stopped).

terrace=$(realpath -m "${TERRACE:-${CARGO_TARGET_DIR:-target}/release/terrace}")
[ -x "$terrace" ] || { echo "there is no $terrace; build it with cargo build --release" >&2; echo "0 passed, 1 failed"; exit 1; }
cache=${TERRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/terrace}
mkdir -p "$cache"
dir=$(mktemp -d)
pid=
end() {
    if [ -n "$pid" ]; then
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    fi
    rm -rf "$dir"
}
trap end EXIT

# skip WHY: ends a script that has nothing to test.
skip() {
    echo "skipped: $1"
    echo "0 passed, 0 failed"
    exit 0
}

# python_place NAME PROBE PACKAGE...: sets `python` to the Python of a virtual environment with these packages. The
# environment is created once. PROBE is Python code that runs without an error if the environment is complete. Fails if
# the environment cannot be created.
python_place() {
    local place probe=$2
    place=$cache/$1-$(python3 -c 'import platform; print(platform.python_version())')
    python=$place/bin/python
    shift 2
    "$python" -c "$probe" 2>/dev/null && return
    rm -rf "$place"
    python3 -m venv "$place" && "$place/bin/pip" install --quiet --disable-pip-version-check "$@" >"$dir/pip-log" 2>&1 && "$python" -c "$probe"
}

# wait_ready: waits, at most 30 s, until the node `pid` with the log $dir/log serves or has ended.
wait_ready() {
    for _ in $(seq 300); do
        grep -q ' ready ' "$dir/log" && break
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
}

# start_node [LINE]...: starts a node with the administrator ann, password s3cret, and these lines in its [sql]; ann reads bodies of
# messages. Sets `address` (SQL) and `mllp`.
start_node() {
    local verifier
    verifier=$(echo s3cret | "$terrace" sql verifier)
    {
        printf 'listen = "127.0.0.1:0"\n[sql]\nlisten = "127.0.0.1:0"\n'
        printf 'administrators = ["ann"]\n'
        if (($#)); then printf '%s\n' "$@"; fi
        printf '[sql.users]\nann = "%s"\n' "$verifier"
    } >"$dir/terrace.toml"
    (cd "$dir" && exec "$terrace" serve) 2>"$dir/log" &
    pid=$!
    wait_ready
    address=$(sed -n 's/.* sql address=//p' "$dir/log")
    mllp=$(sed -n 's/.* listening .*address=//p' "$dir/log" | head -1)
    if [ -z "$address" ]; then
        cat "$dir/log" >&2
        echo "0 passed, 1 failed"
        exit 1
    fi
    (cd "$dir" && "$terrace" role grant message-body unmasked --on 'service *' --to ann) || {
        echo "0 passed, 1 failed"
        exit 1
    }
}

# shellcheck source=scripts/case-lib.sh
source scripts/case-lib.sh

# run_client NAME COMMAND...: runs a client, shows its output, and adds the numbers of its last line to `passed` and
# `failed`.
run_client() {
    local name=$1 last
    shift
    "$@" >"$dir/told" 2>&1 </dev/null || true
    last=$(tail -1 "$dir/told")
    if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        sed '$d' "$dir/told"
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
    else
        cat "$dir/told"
        echo "FAILED $name: it ended without a result"
        failed=$((failed + 1))
    fi
}

# tell: prints the last line and returns the exit code.
tell() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}
