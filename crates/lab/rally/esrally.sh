#!/usr/bin/env bash
# Prints the path of esrally, which it installs from PyPI when it is not there: once, into a virtual environment of its own in the
# folder of downloads (TERRACE_CACHE, else $XDG_CACHE_HOME/terrace, else ~/.cache/terrace). Fails, with the reason, where it cannot
# be installed.
set -euo pipefail

ESRALLY=2.13.0

fail() {
    echo "$1" >&2
    exit 1
}

command -v python3 >/dev/null || fail "no python3"
python=$(python3 -c 'import platform, sys; print(platform.python_version()); sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))') ||
    fail "esrally $ESRALLY needs Python 3.10 to 3.13, and this is $python"
place=${TERRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/terrace}/esrally-$ESRALLY-$python
probe="import esrally.rally"
if ! "$place/bin/python" -c "$probe" 2>/dev/null; then
    rm -rf "$place"
    mkdir -p "$(dirname "$place")"
    {
        python3 -m venv "$place" && "$place/bin/pip" install --quiet --disable-pip-version-check "esrally==$ESRALLY" &&
            "$place/bin/python" -c "$probe"
    } >"$place.log" 2>&1 || fail "esrally $ESRALLY cannot be installed from PyPI: $(tail -1 "$place.log")"
    rm -f "$place.log"
fi
echo "$place/bin/esrally"
