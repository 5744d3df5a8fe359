#!/usr/bin/env bash
# Runs the REST tests of OpenSearch 3.1 (YAML files) against the search service of a node, and reports the pass rate.
#
#   scripts/test-search-yaml.sh [--failures]
#
# The node is the program that TERRACE names, else target/release/terrace. The tests are not part of the checkout:
# ../shared/corpora/es-yaml, or the folder that SEARCH_YAML names (unpacked, the Maven package org.opensearch:rest-api-spec:3.1.0).
# Tests that are known to fail are in search-yaml/known.txt, by reason; any other failure fails the script. --failures shows
# why each of them fails. PyYAML is installed once into a virtual environment in the cache directory: TERRACE_CACHE, else
# $XDG_CACHE_HOME/terrace, else ~/.cache/terrace.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/node-lib.sh
. scripts/node-lib.sh

PYYAML=6.0.3

spec=${SEARCH_YAML:-../shared/corpora/es-yaml}/rest-api-spec
[ -d "$spec/test" ] || skip "the tests are not there: ${spec%/rest-api-spec}"
command -v python3 >/dev/null || skip "no python3"
python_place "pyyaml-$PYYAML" "import yaml; assert yaml.__version__ == '$PYYAML'" "PyYAML==$PYYAML" ||
    skip "PyYAML $PYYAML cannot be installed from PyPI"

# Without the index of messages: the tests delete all indices, and that one cannot be deleted.
cat >"$dir/terrace.toml" <<'TOML'
listen = "127.0.0.1:0"
[search]
listen = "127.0.0.1:0"
trust = true
messages = false
TOML
(cd "$dir" && exec "$terrace" serve) 2>"$dir/log" &
pid=$!
wait_ready
address=$(sed -n 's/.* search address=//p' "$dir/log")
if [ -z "$address" ]; then
    grep -q "built without search" "$dir/log" && skip "the program has no search service"
    cat "$dir/log" >&2
    echo "0 passed, 1 failed"
    exit 1
fi
"$python" scripts/search-yaml/runner.py "http://$address" "$spec" scripts/search-yaml/known.txt "$@" ||
    { tail -5 "$dir/log" >&2; exit 1; }
