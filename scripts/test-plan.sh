#!/usr/bin/env bash
# Tests `terrace profile` with public traces: CloudPhysics and Twitter, in four formats, from libCacheSim's source package. Its LRU caches
# (package libcachesim of PyPI) miss what our curves say, and the sampled curve is that of exact distances, both within 0.01 on average.
#
#   scripts/test-plan.sh
#
# It takes the program that TERRACE names, or builds the small one (terrace-plan). Traces and packages are kept below TERRACE_CACHE.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.3.5
cache=${TERRACE_CACHE:-$HOME/.cache/terrace}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# skip WHY: ends a script that has nothing to test.
skip() {
    echo "skipped: $1"
    echo "0 passed, 0 failed"
    exit 0
}

command -v python3 >/dev/null || skip "there is no python3"
python=$(python3 -c 'import platform; print(platform.python_version())')
home=$cache/libcachesim-$version-$python
if [ ! -e "$home/traces/twitter_cluster52.csv" ]; then
    mkdir -p "$cache"
    fresh=$(mktemp -d "$cache/libcachesim.XXXXXX")
    trap 'rm -rf "$work" "$fresh"' EXIT
    {
        python3 -m venv "$fresh/venv" \
            && "$fresh/venv/bin/pip" install --quiet "libcachesim==$version" \
            && "$fresh/venv/bin/pip" download --quiet --no-deps --no-binary libcachesim -d "$work" "libcachesim==$version"
    } >"$work/log" 2>&1 || skip "libcachesim $version cannot be installed: $(tail -1 "$work/log")"
    mkdir "$fresh/traces"
    tar xzf "$work/libcachesim-$version.tar.gz" -C "$fresh/traces" --strip-components=4 --wildcards \
        '*/data/cloudPhysicsIO.*' '*/data/twitter_cluster52.csv'
    rm -rf "$home"
    mv "$fresh" "$home"
fi

if [ -n "${TERRACE:-}" ]; then
    program=$(realpath "$TERRACE")
else
    cargo build --quiet --locked --package plan
    program=$(realpath "${CARGO_TARGET_DIR:-target}/debug/terrace-plan")
fi
# The environment was moved: its python is called, not its scripts.
"$home/venv/bin/python" scripts/plan-curves.py "$home/traces" "$program" profile
