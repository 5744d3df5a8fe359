#!/usr/bin/env bash
# Runs the public sqllogictest scripts of SQLite over the wire protocol of a real node, and reports how many records pass
# and why the others do not.
#
#   scripts/test-sqllogic.sh [--published] [OPTION OF terrace bench sqllogic]...
#
# ci runs one script of each folder and 50 queries of each script, which takes a minute. --published repeats the run of
# docs/sqllogictest.md with 100 queries. Options replace this selection: without --files and --queries it is then 4 and
# 1,000, which takes longest. A failure with an unknown reason fails the test; the known reasons are in
# crates/lab/bench/src/sqllogic/reasons.rs.
#
# The scripts are part of a Maven package, net.hydromatic:sql-logic-test (the scripts are in the public domain). It is
# downloaded once, its SHA-256 is verified, and the scripts are unpacked in the cache directory: TERRACE_CACHE, else
# $XDG_CACHE_HOME/terrace, else ~/.cache/terrace. They take 110 MB and 1.1 GB.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/node-lib.sh
. scripts/node-lib.sh

VERSION=0.3
SHA256=801efc1904e802795a20ce30559025c0b5a7a21840114722717c0466089c13f0
PLUGIN=org.apache.maven.plugins:maven-dependency-plugin:3.6.1

share=(--files 1 --queries 50)
if [ "${1:-}" = --published ]; then
    share=(--seed 1 --files 1 --queries 100)
    shift
elif (($#)); then
    share=()
fi

command -v python3 >/dev/null || skip "no python3"
scripts=$cache/sqllogictest-$VERSION
if [ ! -d "$scripts" ]; then
    command -v mvn >/dev/null || skip "no mvn, which fetches the scripts (Debian package maven)"
    echo "fetching net.hydromatic:sql-logic-test:$VERSION" >&2
    mvn --batch-mode --quiet "$PLUGIN:copy" -Dartifact="net.hydromatic:sql-logic-test:$VERSION" \
        -DoutputDirectory="$dir" -Dmdep.useBaseVersion=true >&2 || skip "the scripts cannot be fetched"
    echo "$SHA256  $dir/sql-logic-test-$VERSION.jar" | sha256sum --check --quiet ||
        { echo "the package has changed: review it before you change its hash" >&2; exit 1; }
    mkdir -p "$cache"
    # The scripts are unpacked beside the final folder, which is then moved in one step: an interrupted run leaves no
    # partial folder.
    rm -rf "$scripts.new"
    python3 - "$dir/sql-logic-test-$VERSION.jar" "$scripts.new" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as jar:
    jar.extractall(sys.argv[2], [name for name in jar.namelist() if name.startswith("test/") and name.endswith(".test")])
PYTHON
    mv "$scripts.new" "$scripts"
fi

start_node "trust = true"
if "$terrace" bench sqllogic --scripts "$scripts/test" --server "$address" --user ann "${share[@]}" "$@"; then
    echo "1 passed, 0 failed"
else
    tail -5 "$dir/log" >&2
    echo "0 passed, 1 failed"
    exit 1
fi
