#!/usr/bin/env bash
# Runs scripts/check-volume-history.py for a minute: the history of each block of a volume of three copies, whose processes are killed,
# stalled and damaged. SECONDS_LONG=1800 is the whole check. It needs python3.
set -uo pipefail
cd "$(dirname "$0")/.."
command -v python3 >/dev/null || { echo "skipped: no python3"; echo "0 passed, 0 failed"; exit 0; }
exec python3 scripts/check-volume-history.py "${SECONDS_LONG:-40}" "${SEED:-$RANDOM}"
