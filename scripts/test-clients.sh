#!/usr/bin/env bash
# Tests the release binary with stock clients: the MLLP client, command and server of the PyPI package `hl7`
# (python-hl7).
#
# The package is installed once, pinned by hash, into a virtual environment in the cache directory: TERRACE_CACHE, else
# $XDG_CACHE_HOME/terrace, else ~/.cache/terrace. The cases are in mllp-client-test.py.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSION=0.4.5
HASH=sha256:f46bf7c165801fd40e8fcc9f2be41c5794415039adc97646aee7ee6b20ce8ccd

skip() {
    echo "skipped: $1"
    echo "0 passed, 0 failed"
    exit 0
}

terrace=${TERRACE:-${CARGO_TARGET_DIR:-target}/release/terrace}
if [ ! -x "$terrace" ]; then
    echo "there is no $terrace; build it with cargo build --release" >&2
    echo "0 passed, 1 failed"
    exit 1
fi
command -v python3 >/dev/null || skip "no python3"
command -v openssl >/dev/null || skip "no openssl"

cache=${TERRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/terrace}
venv=$cache/python-hl7-$VERSION-$(python3 -c 'import platform; print(platform.python_version())')
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Whether the environment is complete. An environment that an interrupted run left is not.
ready() {
    "$venv/bin/python" -c "import hl7; assert hl7.__version__ == '$VERSION'" 2>/dev/null && [ -x "$venv/bin/mllp_send" ]
}

install() {
    rm -rf "$venv"
    mkdir -p "$cache"
    python3 -m venv "$venv" &&
        echo "hl7==$VERSION --hash=$HASH" |
        "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes -r /dev/stdin
}

if ! ready && ! install >"$log" 2>&1; then
    tail -n 3 "$log" >&2
    skip "the package hl7 $VERSION cannot be installed from PyPI"
fi
rm -f "$log"
exec "$venv/bin/python" scripts/mllp-client-test.py "$terrace" "$venv/bin/mllp_send"
