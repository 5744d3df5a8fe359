#!/usr/bin/env bash
# Tests the console of a node in a browser: Debian's chromium, driven by playwright of PyPI, for which no host but the node has an address.
#
#   scripts/test-console.sh              pictures of all pages go to the folder that PICTURES names, if it does
#
# The node is the program that TERRACE names, else target/release/terrace. It has a production, some hundred messages, one that errors and
# one that a receiver rejects. The cases are in console-test.py: the flows of an operator by keyboard, every page in both schemes at 1280
# and 390 pixels, axe-core on each, texts that would be scripts in messages, tables, documents and forms, no request to elsewhere, no breach of the policy of contents, the size of a first visit.
#
# Somebody also signs in at a provider of logins: oidc-provider.py, which signs tokens by RS256.
#
# Chromium is installed from Debian if it is not there and this is root; axe-core comes from npm, playwright from PyPI, once, into the
# cache directory.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/node-lib.sh
. scripts/node-lib.sh

PLAYWRIGHT=1.65.2
AXE=4.14.1

command -v python3 >/dev/null || skip "no python3"
command -v npm >/dev/null || skip "no npm"
if ! command -v chromium >/dev/null; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get install -y -qq chromium >"$dir/apt-log" 2>&1 || skip "no chromium"
fi
python_place "playwright-$PLAYWRIGHT" "import playwright" "playwright==$PLAYWRIGHT" || skip "playwright $PLAYWRIGHT cannot be installed from PyPI"
axe=$cache/axe-core-$AXE.js
if [ ! -s "$axe" ]; then
    (cd "$dir" && npm pack --silent "axe-core@$AXE" >packed && tar xzf "$(cat packed)" package/axe.min.js) || skip "axe-core $AXE cannot be had from npm"
    mv "$dir/package/axe.min.js" "$axe"
fi

mkdir -p "$dir/production"/{services,operations,rules,transforms,tables}
cd "$dir"
printf 'kind = "mllp"\nlisten = "127.0.0.1:0"\nrules = "main"\n' >production/services/adt-in.toml
printf 'kind = "mllp"\nlisten = "127.0.0.1:0"\nrules = "main"\n' >production/services/lab-in.toml
printf 'kind = "file"\nfolder = "archive"\n' >production/operations/archive.toml
printf 'kind = "mllp"\naddress = "127.0.0.1:9"\n' >production/operations/lab-out.toml
printf 'kind = "file"\nfolder = "registry"\n' >production/operations/registry.toml
cat >production/rules/main.rules <<'RULES'
match all

rule everything when MSH-9.1 = "ADT" or MSH-9.1 = "ORU" {
  send to archive
}

rule results when MSH-9.1 = "ORU" {
  send to lab-out using to-laboratory
}

rule admissions when MSH-9.1 = "ADT" {
  send to registry using to-registry
}
RULES
printf 'set MSH-5 = "LAB"\nset PV1-3.1 = lookup(wards, PV1-3.1)\n' >production/transforms/to-laboratory.hl7t
printf 'set MSH-5 = "REGISTRY"\nset MSH-6 = "CENTRAL"\n' >production/transforms/to-registry.hl7t
printf 'ICU,Intensive care\nW7,Ward seven\n' >production/tables/wards.csv
printf 'name = "north-hospital"\n' >production/production.toml
cd - >/dev/null
# It ends when this script does, and with that its standard input.
coproc provider { exec python3 scripts/oidc-provider.py; }
read -r issuer <&"${provider[0]}"
# The provider has to know the console's address before there is one.
port=$(python3 -c 'import socket; place = socket.socket(); place.bind(("127.0.0.1", 0)); print(place.getsockname()[1])')
cd "$dir"
cat >terrace.toml <<SETTINGS
production = "production"
[sql]
listen = "127.0.0.1:0"
[search]
listen = "127.0.0.1:0"
trust = true
[console]
listen = "127.0.0.1:$port"
[oidc]
issuer = "$issuer"
client_id = "terrace"
base_url = "http://127.0.0.1:$port"
title = "the clinic"
group_claim = "groups"
create = true
[oidc.roles]
doctors = "doctors"
SETTINGS
"$terrace" serve 2>log &
pid=$!
cd - >/dev/null
wait_ready
url=http://$(sed -n 's/.* console address=//p' "$dir/log")
search=http://$(sed -n 's/.* search address=//p' "$dir/log")
[ "$url" != http:// ] || { cat "$dir/log" >&2; echo "0 passed, 1 failed"; exit 1; }
run_client console "$python" -B scripts/console-test.py "$url" "$terrace" "$dir" "$axe" "$search" "$issuer"
tell
