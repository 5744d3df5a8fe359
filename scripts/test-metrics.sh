#!/usr/bin/env bash
# Tests metrics and health with the programs that read them: curl, promtool and a real Prometheus, which scrapes a node under a load of
# messages through a restart. Every expression of deploy/metrics (alert rules, dashboard) is run on it, and the dashboard is read by
# Grafana's own types. metrics-test.py has the cases. README.md has the rules for scripts.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/node-lib.sh
source scripts/node-lib.sh

sdk='grafana-foundation-sdk==1769699998!10.1.0'
python_place metrics-py "import grafana_foundation_sdk, yaml" "$sdk" "PyYAML==6.0.3" ||
    skip "no Python environment with grafana-foundation-sdk and PyYAML can be made"
command -v curl >/dev/null || skip "no curl"
# Debian's package, unpacked and not installed: no service is started.
tools=$cache/prometheus-debian
if [ ! -x "$tools/usr/bin/promtool" ]; then
    mkdir -p "$dir/deb"
    (cd "$dir/deb" && { apt-get download prometheus || { apt-get update && apt-get download prometheus; }; } >"$dir/apt-log" 2>&1) ||
        skip "Debian's package prometheus cannot be downloaded"
    rm -rf "$tools" && mkdir -p "$tools" && dpkg -x "$dir"/deb/prometheus_*.deb "$tools"
fi

run_client metrics "$python" scripts/metrics-test.py "$terrace" "$tools/usr/bin" "$dir"
tell
