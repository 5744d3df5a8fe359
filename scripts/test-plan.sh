#!/usr/bin/env bash
# Tests `terrace profile` with public traces: CloudPhysics and Twitter, in four formats, from libCacheSim's source package. Its LRU caches
# (package libcachesim of PyPI) miss what our curves say, and the sampled curve is that of exact distances, both within 0.01 on average.
# Then it tests the page of a plan in a browser, if there is one: plan-page-test.py.
#
#   scripts/test-plan.sh                 pictures of the page go to the folder that PICTURES names, if it does
#   PAGE_ONLY=1 scripts/test-plan.sh     the page only
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

# curves: our curves beside libCacheSim's.
curves() {
    if [ ! -e "$home/traces/twitter_cluster52.csv" ]; then
        mkdir -p "$cache"
        fresh=$(mktemp -d "$cache/libcachesim.XXXXXX")
        trap 'rm -rf "$work" "$fresh"' EXIT
        {
            python3 -m venv "$fresh/venv" \
                && "$fresh/venv/bin/pip" install --quiet "libcachesim==$version" \
                && "$fresh/venv/bin/pip" download --quiet --no-deps --no-binary libcachesim -d "$work" "libcachesim==$version"
        } >"$work/log" 2>&1 || { echo "the curves are not tested: libcachesim $version cannot be installed: $(tail -1 "$work/log")"; return; }
        mkdir "$fresh/traces"
        tar xzf "$work/libcachesim-$version.tar.gz" -C "$fresh/traces" --strip-components=4 --wildcards \
            '*/data/cloudPhysicsIO.*' '*/data/twitter_cluster52.csv'
        rm -rf "$home"
        mv "$fresh" "$home"
    fi
    # The environment was moved: its python is called, not its scripts.
    "$home/venv/bin/python" scripts/plan-curves.py "$home/traces" "$program" profile
}

# page: the page of a plan in Debian's chromium, driven by playwright of PyPI, with axe-core of npm. Nothing is downloaded for it twice.
page() {
    local playwright=1.65.2 axe=4.14.1 place
    command -v chromium >/dev/null || { echo "the page is not tested: no chromium"; return; }
    place=$cache/playwright-$playwright-$python
    if ! "$place/bin/python" -c "import playwright" 2>/dev/null; then
        rm -rf "$place"
        python3 -m venv "$place" && "$place/bin/pip" install --quiet "playwright==$playwright" >"$work/log" 2>&1 \
            || { echo "the page is not tested: playwright $playwright cannot be installed"; return; }
    fi
    if [ ! -s "$cache/axe-core-$axe.js" ]; then
        (cd "$work" && npm pack --silent "axe-core@$axe" >packed && tar xzf "$(cat packed)" package/axe.min.js) \
            || { echo "the page is not tested: axe-core $axe cannot be had from npm"; return; }
        mv "$work/package/axe.min.js" "$cache/axe-core-$axe.js"
    fi
    "$place/bin/python" -B scripts/plan-page-test.py "$program" "$cache/axe-core-$axe.js" "$work"
}

if [ -n "${TERRACE:-}" ]; then
    program=$(realpath "$TERRACE")
else
    cargo build --quiet --locked --package plan
    program=$(realpath "${CARGO_TARGET_DIR:-target}/debug/terrace-plan")
fi
if [ -z "${PAGE_ONLY:-}" ]; then
    curves
fi
page
