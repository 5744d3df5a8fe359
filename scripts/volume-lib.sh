# Functions that the scripts test-volume-*.sh share: volumes, and the processes that export them. This file is
# sourced, not run.
#
#   $terrace   the program
#   $dir       files of this run; terrace.toml there has the tiers a, b and c below it, and pmem, which is emulated on /dev/shm
#   $memory    what lies on /dev/shm
#   $pids      processes of this run

# make_tiers: writes terrace.toml.
make_tiers() {
    local tier
    memory=$(mktemp -d -p /dev/shm)
    for tier in a b c; do
        printf '[tiers.%s]\nkind = "file"\npath = "%s"\n' "$tier" "$dir/$tier"
    done >"$dir/terrace.toml"
    printf '[tiers.pmem]\nkind = "pmem"\npath = "%s"\nabsent = "emulate"\n' "$memory" >>"$dir/terrace.toml"
    mkdir "$dir/other"
}

# uri NAME [FOLDER]: the address of an export.
uri() {
    echo "nbd+unix:///$1?socket=${2:-$dir}/terrace-data/nbd.sock"
}

# volume WORD...: `terrace volume` where terrace.toml is.
volume() {
    (cd "$dir" && "$terrace" volume "$@")
}

# On a machine with other work everything takes longer: nothing here is a statement about speed.
PATIENCE=240

# until_true COMMAND...: runs a command until it succeeds. Fails when it did not for $PATIENCE seconds.
until_true() {
    local deadline=$((SECONDS + PATIENCE))
    until "$@" >/dev/null 2>&1; do
        if ((SECONDS > deadline)); then
            echo "not in $PATIENCE s: $*"
            return 1
        fi
        sleep 0.2
    done
}

# export_from FOLDER NAME...: starts a process that exports volumes of the data directory there, and waits until it serves. Sets $pid.
export_from() {
    local folder=$1 deadline=$((SECONDS + PATIENCE))
    shift
    # Not by the process itself: the log of the one before would be read until then.
    : >"$folder/export.log"
    (cd "$folder" && exec "$terrace" volume export "$@") >>"$folder/export.log" 2>&1 </dev/null &
    pid=$!
    pids+=("$pid")
    until grep -q "ends this" "$folder/export.log"; do
        if ((SECONDS > deadline)) || ! kill -0 "$pid" 2>/dev/null; then
            echo "the export of $* did not begin:"
            tail -5 "$folder/export.log"
            return 1
        fi
        sleep 0.1
    done
}

# Starts the process under test with the volumes in $exported. Sets $exporter.
serve() {
    # shellcheck disable=SC2086
    export_from "$dir" $exported || return 1
    exporter=$pid
}

# kill_process PID: ends a process as a crash does.
kill_process() {
    kill -9 "$1" 2>/dev/null
    wait "$1" 2>/dev/null || true
}

# stop_serving: ends the process under test as an operator does.
stop_serving() {
    (cd "$dir" && "$terrace" stop) || return 1
    wait "$exporter"
}

# states NAME: the states of the volume's copies, in one line.
states() {
    volume status "$1" --json | sed -n 's/^ *"state": "\(.*\)",*$/\1/p' | tail -n +2 | tr '\n' ' '
}

# copy_is NAME NUMBER STATE
copy_is() {
    [ "$(states "$1" | cut -d' ' -f$(($2 + 1)))" = "$3" ]
}

# all_in_sync NAME
all_in_sync() {
    states "$1" | grep -q . && ! states "$1" | tr ' ' '\n' | grep . | grep -vqx "in-sync"
}

# place_of NAME NUMBER: the folder of a copy.
place_of() {
    volume status "$1" --json | sed -n 's/^ *"at": "\(.*\)",*$/\1/p' | sed -n "$(($2 + 1))p"
}

# figure KEY: the first number of that name in JSON.
figure() {
    sed -n "s/^ *\"$1\": \([0-9]*\),*\$/\1/p" | head -1
}

# repairs NAME NUMBER: how many blocks of a copy were repaired since the volume was opened.
repairs() {
    volume status "$1" --json | sed -n 's/^ *"repaired": \([0-9]*\),*$/\1/p' | sed -n "$(($2 + 1))p"
}

# scrubbed NAME: a scrub that finds nothing lost.
scrubbed() {
    volume scrub "$1" --json >"$dir/scrub" && cat "$dir/scrub" && [ "$(figure damaged <"$dir/scrub")" = 0 ]
}
