#!/usr/bin/env bash
# Tests keys that a program prints (TERRACE_KEY=command:...) with the real binary, a token of SoftHSM over PKCS#11 (OpenSC) and a key manager
# over KMIP (PyKMIP's server, with client certificates): a store is made, opened, moved from one key to the other, and refused where the token
# or the key manager does not give the right key, or none. The programs are those of docs/encryption.md, read from there.
# README.md has the rules for scripts.
set -uo pipefail
cd "$(dirname "$0")/.."
missing=()
command -v softhsm2-util >/dev/null || missing+=(softhsm2)
command -v pkcs11-tool >/dev/null || missing+=(opensc)
command -v openssl >/dev/null || missing+=(openssl)
if ((${#missing[@]})); then
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1 \
        || { echo "skipped: ${missing[*]} cannot be installed"; echo "0 passed, 0 failed"; exit 0; }
fi
source scripts/node-lib.sh
PYKMIP=0.11.0
manager=
finish() {
    [ -z "$manager" ] || { kill "$manager" 2>/dev/null && wait "$manager" 2>/dev/null; }
    end
}
trap finish EXIT
docs=$PWD/docs/encryption.md
python_place "pykmip-$PYKMIP" "import kmip; assert kmip.__version__ == '$PYKMIP'" "pykmip==$PYKMIP" \
    || { cat "$dir/pip-log"; skip "PyKMIP cannot be installed"; }
cd "$dir" || exit 1

# program NAME FIRST [SED]: makes the program of the documentation that has this line; SED changes paths.
program() {
    awk -v wanted="$2" '/^```$/ { if (found) { printf "%s", text; exit } text = ""; next } { text = text $0 "\n" } index($0, wanted) { found = 1 }' \
        "$docs" | sed "${3:-}" >"$1"
    chmod 0700 "$1"
    [ -s "$1" ]
}
# serves KEY DATA: a node starts with this key, and stops.
serves() {
    : >log
    TERRACE_KEY=$1 "$terrace" serve --config terrace.toml --data "$2" 2>log &
    pid=$!
    wait_ready
    "$terrace" stop --data "$2"
    wait "$pid"
    local code=$?
    pid=
    grep -q ' ready ' log && [ $code -eq 0 ] || { cat log; return 1; }
}
printf 'listen = "127.0.0.1:0"\n' >terrace.toml

# A token with the key in it, which the PIN opens.
export SOFTHSM2_CONF=$dir/softhsm2.conf
mkdir tokens
printf 'directories.tokendir = %s/tokens\nlog.level = ERROR\n' "$dir" >softhsm2.conf
softhsm2-util --init-token --free --label terrace --so-pin 12345678 --pin 4321 >/dev/null || { echo "0 passed, 1 failed"; exit 1; }
export TERRACE_PIN=4321
program keep-key "--write-object key"
case_ "PKCS#11: the key is written to the token by the documentation's command" sh -e keep-key
case_ "PKCS#11: its file is gone" test ! -e key
program token-key "--read-object"
token="command:$dir/token-key"
case_ "PKCS#11: a store is made with the token's key" env TERRACE_KEY="$token" "$terrace" encryption init --data data
case_ "PKCS#11: a node starts with it" serves "$token" data
case_ "PKCS#11: the store can be read" env TERRACE_KEY="$token" "$terrace" verify --data data
case_ "PKCS#11: a wrong PIN is an error that names the program" \
    refuses "token-key" env TERRACE_PIN=1111 TERRACE_KEY="$token" "$terrace" verify --data data
case_ "PKCS#11: no token is an error that names the program" \
    refuses "token-key" env SOFTHSM2_CONF=/dev/null TERRACE_KEY="$token" "$terrace" verify --data data

# A key manager that knows its clients by certificates.
certificates() {
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout ca.key -out ca.crt -subj /CN=ca || return
    printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=clientAuth,serverAuth\nkeyUsage=digitalSignature\n' >extensions
    for name in server client; do
        openssl req -newkey rsa:2048 -nodes -keyout "$name.key" -out "$name.csr" -subj "/CN=$name" || return
        openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out "$name.crt" -extfile extensions || return
    done
}
certificates >openssl.log 2>&1 || { cat openssl.log; echo "0 passed, 1 failed"; exit 1; }
mkdir policies
# start_manager: starts the key manager on a port that is free, and waits until it listens.
start_manager() {
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    printf '%s\n' "[server]" hostname=127.0.0.1 "port=$port" "certificate_path=$dir/server.crt" "key_path=$dir/server.key" \
        "ca_path=$dir/ca.crt" auth_suite=TLS1.2 "policy_path=$dir/policies" enable_tls_client_auth=True logging_level=INFO \
        "database_path=$dir/kmip.db" >server.conf
    # PyKMIP reads its client's settings from the home directory.
    mkdir -p home/.pykmip
    printf '%s\n' "[client]" host=127.0.0.1 "port=$port" "certfile=$dir/client.crt" "keyfile=$dir/client.key" "ca_certs=$dir/ca.crt" \
        cert_reqs=CERT_REQUIRED ssl_version=PROTOCOL_SSLv23 do_handshake_on_connect=True suppress_ragged_eofs=True username= password= \
        >home/.pykmip/pykmip.conf
    "${python%/*}/pykmip-server" -f server.conf -l "$dir/manager.log" >manager.out 2>&1 &
    manager=$!
    for _ in $(seq 300); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return
        kill -0 "$manager" 2>/dev/null || break
        sleep 0.1
    done
    cat manager.out
    return 1
}
start_manager || { echo "$passed passed, $((failed + 1)) failed"; exit 1; }
export HOME=$dir/home PYTHONWARNINGS=ignore
cat >register.py <<'PYTHON'
import os
from kmip import enums
from kmip.pie.client import ProxyKmipClient
from kmip.pie.objects import SymmetricKey
with ProxyKmipClient() as client:
    print(client.register(SymmetricKey(enums.CryptographicAlgorithm.AES, 256, os.urandom(32))))
PYTHON
id=$("$python" register.py) && other=$("$python" register.py)
case_ "KMIP: the key manager has two keys" test -n "$id" -a -n "${other:-}"
program manager-key "ProxyKmipClient()" "s|^#!/usr/bin/python3|#!$python|"
managed="command:$dir/manager-key $id"
case_ "KMIP: a store is made with the key manager's key" env TERRACE_KEY="$managed" "$terrace" encryption init --data managed
case_ "KMIP: a node starts with it" serves "$managed" managed
case_ "KMIP: the store can be read" env TERRACE_KEY="$managed" "$terrace" verify --data managed
case_ "KMIP: the key manager's other key is refused by its id" \
    refuses "the data keys are wrapped with key" env TERRACE_KEY="command:$dir/manager-key $other" "$terrace" verify --data managed
case_ "the store of the token moves to the key manager's key" \
    env TERRACE_KEY="$token" "$terrace" encryption rotate-key-encryption-key --new "$managed" --data data
case_ "it opens with that key" env TERRACE_KEY="$managed" "$terrace" verify --data data
case_ "a node starts with that key" serves "$managed" data
case_ "the token's key does not open it any more" refuses "token-key" env TERRACE_KEY="$token" "$terrace" verify --data data
kill "$manager" && wait "$manager" 2>/dev/null
manager=
case_ "KMIP: a key manager that is down is an error that names the program" \
    refuses "manager-key" env TERRACE_KEY="$managed" "$terrace" verify --data managed
start_manager || { echo "$passed passed, $((failed + 1)) failed"; exit 1; }
case_ "KMIP: it opens again when the key manager is back" env TERRACE_KEY="$managed" "$terrace" verify --data managed
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
