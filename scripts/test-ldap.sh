#!/usr/bin/env bash
# Tests logins by the passwords of a directory with the real binary, psql and curl, and OpenLDAP's slapd: right and wrong, locked, unknown
# and hostile names, groups that change, open sessions, TLS, two servers that die and come back. The servers are processes of this
# script with data, ports and certificates of its own. The text of each case is its expectation. README.md has the rules for scripts.
set -uo pipefail
cd "$(dirname "$0")/.."
missing=()
[ -x /usr/sbin/slapd ] || missing+=(slapd)
command -v ldapmodify >/dev/null || missing+=(ldap-utils)
command -v psql >/dev/null || missing+=(postgresql-client)
command -v curl >/dev/null || missing+=(curl)
command -v openssl >/dev/null || missing+=(openssl)
if ((${#missing[@]})); then
    # RUNLEVEL=1: the packages of Debian then do not start their services.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1 \
        || { echo "skipped: ${missing[*]} cannot be installed"; echo "0 passed, 0 failed"; exit 0; }
fi
source scripts/node-lib.sh
slapds=()
finish() {
    exec 3>&- 2>/dev/null
    for one in "${slapds[@]}"; do kill "$one" 2>/dev/null && wait "$one" 2>/dev/null; done
    end
}
trap finish EXIT
cd "$dir" || exit 1

# await COMMAND...: waits until the command succeeds, at most PATIENCE seconds, longer than anything here takes.
PATIENCE=60
await() {
    local since=$SECONDS
    until "$@"; do
        [ $((SECONDS - since)) -lt $PATIENCE ] || { echo "waited $PATIENCE s"; return 1; }
        sleep 0.1
    done
}

# A port that was free a moment ago: slapd cannot be told to take any.
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

certificates() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$1 authority" \
        -keyout "$1-ca.key" -out "$1-ca.pem" &&
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost -keyout "$1.key" -out "$1.csr" &&
        printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' >"$1.ext" &&
        openssl x509 -req -in "$1.csr" -CA "$1-ca.pem" -CAkey "$1-ca.key" -CAcreateserial -days 2 -extfile "$1.ext" -out "$1.pem"
}

# person NAME: an entry whose password is "NAME secret".
person() {
    printf 'dn: uid=%s,ou=people,dc=example,dc=org\nobjectClass: inetOrgPerson\ncn: %s\nsn: %s\nuid: %s\nuserPassword: %s secret\n\n' \
        "$1" "$1" "$1" "$1" "$1"
}
# group NAME MEMBER...
group() {
    printf 'dn: cn=%s,ou=groups,dc=example,dc=org\nobjectClass: groupOfNames\ncn: %s\nmember: cn=nobody\n' "$1" "$1"
    shift
    printf 'member: uid=%s,ou=people,dc=example,dc=org\n' "$@"
    echo
}
entries() {
    printf 'dn: dc=example,dc=org\nobjectClass: dcObject\nobjectClass: organization\no: Example\ndc: example\n\n'
    for unit in people groups services policies; do
        printf 'dn: ou=%s,dc=example,dc=org\nobjectClass: organizationalUnit\nou: %s\n\n' $unit $unit
    done
    printf 'dn: cn=terrace,ou=services,dc=example,dc=org\nobjectClass: organizationalRole\nobjectClass: simpleSecurityObject\n'
    printf 'cn: terrace\nuserPassword: service secret\n\n'
    printf 'dn: cn=default,ou=policies,dc=example,dc=org\nobjectClass: organizationalRole\nobjectClass: pwdPolicy\n'
    printf 'cn: default\npwdAttribute: userPassword\npwdLockout: TRUE\n\n'
    for name in carl dora eve frank 'smith, "j+r" #1'; do person "$name"; done | sed 's/^dn: uid=smith.*\(,ou=people.*\)$/dn: uid=smith\\, \\"j\\+r\\" #1\1/'
    group doctors carl dora frank
    group nurses eve
}
# slapd NUMBER PORT URL...: a server with its own copy of the entries.
slapd() {
    local number=$1
    shift
    mkdir -p "slapd$number"
    cat >"slapd$number.conf" <<CONF
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload memberof
moduleload ppolicy
TLSCACertificateFile $dir/directory-ca.pem
TLSCertificateFile $dir/directory.pem
TLSCertificateKeyFile $dir/directory.key
database mdb
suffix "dc=example,dc=org"
rootdn "cn=admin,dc=example,dc=org"
rootpw adminsecret
directory $dir/slapd$number
overlay memberof
overlay ppolicy
ppolicy_default "cn=default,ou=policies,dc=example,dc=org"
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="cn=terrace,ou=services,dc=example,dc=org" read by self read by * auth
CONF
    # A copy of the program: profiles of AppArmor are for the system's place and data.
    [ -x ./slapd ] || cp /usr/sbin/slapd ./slapd
    ./slapd -d 0 -f "slapd$number.conf" -h "$*" 2>"slapd$number.log" &
    slapds[number]=$!
}
change() { ldapmodify -x -H "ldap://127.0.0.1:$1" -D cn=admin,dc=example,dc=org -w adminsecret; }
answers() { ldapwhoami -x -H "ldap://127.0.0.1:$1" -D cn=terrace,ou=services,dc=example,dc=org -w "service secret"; }

one_port=$(port) tls_port=$(port) two_port=$(port)
one() { slapd 1 "ldap://127.0.0.1:$one_port/ ldaps://127.0.0.1:$tls_port/"; }
two() { slapd 2 "ldap://127.0.0.1:$two_port/"; }
fill() { entries | ldapadd -x -H "ldap://127.0.0.1:$1" -D cn=admin,dc=example,dc=org -w adminsecret; }

certificates directory >openssl.log 2>&1 && certificates other >>openssl.log 2>&1 || { cat openssl.log; echo "0 passed, 1 failed"; exit 1; }
one
two
up() { ldapwhoami -x -H "ldap://127.0.0.1:$1" -D cn=admin,dc=example,dc=org -w adminsecret >/dev/null 2>&1; }
case_ "two slapd run" eval "await up $one_port && await up $two_port"
case_ "they know people and groups" eval "fill $one_port && fill $two_port && answers $one_port"

echo "service secret" >service.password
echo "carl secret" >carl.password
echo "wrong" >wrong.password
# settings FILE: the part [ldap] for a service account, and more lines for it.
settings() {
    cat <<TOML
[ldap]
url = ["ldaps://127.0.0.1:$tls_port", "ldap://localhost:$two_port"]
authority = "$dir/directory-ca.pem"
bind_dn = "cn=terrace,ou=services,dc=example,dc=org"
bind_password = "file:$dir/service.password"
base = "ou=people,dc=example,dc=org"
user_attribute = "uid"
group_attribute = "memberOf"
timeout = "2s"
recheck = "1s"
create = true
[ldap.roles]
"cn=Doctors,ou=Groups,dc=example,dc=org" = "doctors"
TOML
}
settings >try.toml
try() { "$terrace" user ldap --config "$@"; }
case_ "the settings are tried: every step is shown" says 'tls *TLSv1_3, the certificate is right' try try.toml carl --password-file carl.password
for step in 'connect *connected to 127.0.0.1' 'bind *bound as cn=terrace' 'search *(uid=carl) below' 'password *the password of uid=carl' 'groups *1 groups' 'role *doctors'; do
    case_ "  ${step%% *}" grep -q -- "$step" says.log
done
case_ "a user is looked up without a password" says 'role *doctors' try try.toml carl --no-password
case_ "a wrong password is told at its step" refuses 'password *FAILED: the name or the password is wrong' try try.toml carl --password-file wrong.password
case_ "a name of nobody is told at its step" refuses 'search *FAILED: .*finds nothing' try try.toml nobody --no-password
sed 's/directory-ca/other-ca/' try.toml >bad.toml
case_ "another authority is told at its step" refuses 'tls *FAILED' try bad.toml carl --no-password
sed "s/$tls_port/1/; s/$two_port/1/" try.toml >bad.toml
case_ "a server that is not there is told at its step" refuses 'connect *FAILED' try bad.toml carl --no-password
sed 's/service.password/wrong.password/' try.toml >bad.toml
case_ "a wrong service account is told at its step" refuses 'bind *FAILED' try bad.toml carl --no-password
sed '/^bind_/d; /^base/d; /^recheck/d; /^create/d; /^\[ldap\]/a user_dn = "uid={user},ou=people,dc=example,dc=org"' try.toml >template.toml
case_ "a user binds by a template and reads its own entry" says 'role *doctors' try template.toml carl --password-file carl.password
case_ "a hostile name is none in a template" refuses 'password *FAILED' try template.toml 'carl,ou=people' --password-file carl.password
sed '/^group_attribute/c group_base = "ou=groups,dc=example,dc=org"' try.toml | sed 's/^"cn=Doctors.*/doctors = "doctors"/' >groups.toml
case_ "groups are searched, and named by their name" says 'role *doctors' try groups.toml carl --password-file carl.password
case_ "special characters of a name are part of it" says 'search .*finds' try try.toml 'smith, "j+r" #1' --no-password
{
    printf '[ldap]\nurl = "ldap://192.0.2.1"\nstarttls = false\nuser_dn = "uid={user},dc=example,dc=org"\n'
} >terrace.toml
case_ "a directory elsewhere without TLS is refused at the start" refuses 'beyond this machine and without TLS' "$terrace" serve

# The node: SQL with TLS, search, messages.
{
    printf 'listen = "127.0.0.1:0"\n[sql]\nlisten = "127.0.0.1:0"\ncertificate = "%s"\nkey = "%s"\n' "$dir/directory.pem" "$dir/directory.key"
    printf '[search]\nlisten = "127.0.0.1:0"\n[console]\nlisten = "127.0.0.1:0"\n'
    settings
} >terrace.toml
start() {
    "$terrace" serve 2>log &
    pid=$!
    wait_ready
    address=$(sed -n 's/.* sql address=//p' log)
    search=$(sed -n 's/.* search address=\([^ ]*\).*/\1/p' log)
    mllp=$(sed -n 's/.* listening .*address=//p' log | head -1)
    [ -n "$address" ] && [ -n "$search" ] || { cat log; return 1; }
}
case_ "a node starts" start
address=$(sed -n 's/.* sql address=//p' log)
search=$(sed -n 's/.* search address=\([^ ]*\).*/\1/p' log)
mllp=$(sed -n 's/.* listening .*address=//p' log | head -1)
sql() { # sql USER PASSWORD QUERY [OPTION=VALUE]...
    local user=$1 password=$2 query=$3
    shift 3
    PGPASSWORD=$password PGUSER=$user psql -w -X -At -c "$query" "host=127.0.0.1 port=${address##*:} dbname=postgres $*"
}
http() { curl -s -o http.log -w '%{http_code}' -u "$1:$2" "http://$search/_security/_authenticate"; }
code() { [ "$(http "$2" "$3")" = "$1" ] || { http "$2" "$3"; cat http.log; return 1; }; }
echo "local secret" >local.password
case_ "users and roles are made" eval '"$terrace" user add ann --administrator --password-file local.password && "$terrace" role create doctors && "$terrace" user add carl --ldap'
case_ "a user of the directory logs in over SQL" says '^carl$' sql carl "carl secret" 'select current_user'
case_ "its groups are its roles" says '^t$' sql carl "carl secret" "select pg_has_role('doctors', 'member')"
case_ "it logs in within TLS" says '^carl$' sql carl "carl secret" 'select current_user' "sslmode=verify-full sslrootcert=$dir/directory-ca.pem"
case_ "it logs in without TLS on this machine" says '^carl$' sql carl "carl secret" 'select current_user' sslmode=disable
case_ "a wrong password is refused" refuses 'password authentication failed for user "carl"' sql carl wrong 'select 1'
case_ "a name of nobody is refused with the same words" refuses 'password authentication failed for user "nobody"' sql nobody wrong 'select 1'
case_ "a local user logs in by its password here" says '^ann$' sql ann "local secret" 'select current_user'
case_ "a wrong password of a local user is refused with the same words" refuses 'password authentication failed for user "ann"' sql ann wrong 'select 1'
case_ "over search the right password counts" code 200 carl "carl secret"
case_ "a wrong one does not" code 401 carl wrong
case_ "an empty one does not" code 401 carl ""
case_ "who is in a group becomes a role" says '^dora$' sql dora "dora secret" 'select current_user'
case_ "it is shown as one of the directory" says 'password in the directory (LDAP), by a group' "$terrace" user show dora
case_ "who is in none does not" refuses 'password authentication failed' sql eve "eve secret" 'select 1'
case_ "the name counts as the directory writes it" refuses 'password authentication failed' sql DORA "dora secret" 'select 1'
for name in '*' 'dora)(uid=*' 'dora,ou=people' 'uid=dora'; do
    case_ "the name $name is nobody" refuses 'password authentication failed' sql "$name" "dora secret" 'select 1'
done
case_ "no other role was made" eval '"$terrace" role list >roles.log && grep -q "^dora" roles.log && ! grep -E "^(eve|DORA|\*|dora[),]|uid=)" roles.log'
case_ "failed logins are in the audit, with the directory's reason" says 'Ldap(WrongPassword)' "$terrace" audit list
case_ "logins are, with their proof" says '"proof":"ldap"' "$terrace" audit list --action login --json
case_ "changes by groups are" says 'role dora' "$terrace" audit list --action identity.directory

# session USER PASSWORD: an open session, whose statements come from descriptor 3.
session() {
    rm -f statements
    mkfifo statements
    PGPASSWORD=$2 PGUSER=$1 psql -w -X -At "host=127.0.0.1 port=${address##*:} dbname=postgres" <statements >session.log 2>&1 &
    client=$!
    exec 3>statements
    echo "select 'open';" >&3
    await grep -q open session.log
}
# A session has ended when its client has: it sees the end at its next statement.
ended() {
    echo "select 1;" >&3 2>/dev/null
    ! kill -0 "$client" 2>/dev/null
}
trap '' PIPE
case_ "a session is open" session carl "carl secret"
lock() { printf 'dn: uid=carl,ou=people,dc=example,dc=org\nchangetype: modify\nadd: pwdAccountLockedTime\npwdAccountLockedTime: 000001010000Z\n' | change "$1"; }
unlock() { printf 'dn: uid=carl,ou=people,dc=example,dc=org\nchangetype: modify\ndelete: pwdAccountLockedTime\n' | change "$1"; }
case_ "the user is locked in the directory" eval "lock $one_port && lock $two_port"
case_ "its session ends" await ended
exec 3>&-
case_ "it does not log in again" refuses 'password authentication failed' sql carl "carl secret" 'select 1'
case_ "nor over search" code 401 carl "carl secret"
case_ "the user is unlocked" eval "unlock $one_port && unlock $two_port"
case_ "it logs in again" says '^carl$' sql carl "carl secret" 'select current_user'

case_ "a session by a group is open" session dora "dora secret"
leave() { printf 'dn: cn=doctors,ou=groups,dc=example,dc=org\nchangetype: modify\ndelete: member\nmember: uid=dora,ou=people,dc=example,dc=org\n' | change "$1"; }
case_ "a user is taken out of its group" eval "leave $one_port && leave $two_port"
case_ "its session ends" await ended
exec 3>&-
case_ "it was let in by that group, and is no more" refuses 'password authentication failed' sql dora "dora secret" 'select 1'

# console USER PASSWORD: signs in at the console, where no connection stays open.
console=http://$(sed -n 's/.* console address=//p' log)
console() {
    rm -f cookies
    curl -s -b cookies -c cookies "$console/sign-in" >page.log
    local token
    token=$(grep -o 'name="token" value="[^"]*"' page.log | head -1 | sed 's/.*value="//; s/"$//')
    curl -s -o page.log -b cookies -c cookies -H "Origin: $console" --data-urlencode "token=$token" \
        --data-urlencode "user=$1" --data-urlencode "password=$2" --data-urlencode "next=/" "$console/sign-in"
    signed_in || { cat page.log; return 1; }
}
signed_in() { [ "$(curl -s -o page.log -w '%{http_code}' -b cookies "$console/account")" = 200 ]; }
signed_out() { ! signed_in; }
case_ "a user of the directory has a session at the console, and no connection" console carl "carl secret"
case_ "the user is locked in the directory" eval "lock $one_port && lock $two_port"
case_ "its session at the console ends" await signed_out
case_ "the user is unlocked" eval "unlock $one_port && unlock $two_port"

case_ "one of a user who will be removed is open" session frank "frank secret"
remove() { printf 'dn: uid=frank,ou=people,dc=example,dc=org\nchangetype: delete\n' | change "$1"; }
case_ "a user is removed from the directory" eval "remove $one_port && remove $two_port"
case_ "its session ends" await ended
exec 3>&-

case_ "a session of an unlocked user is open" session carl "carl secret"
case_ "a lock here ends a session" eval '"$terrace" user lock carl --reason test && await ended'
exec 3>&-
case_ "and keeps the right password out" refuses 'password authentication failed' sql carl "carl secret" 'select 1'
case_ "it is unlocked here" "$terrace" user unlock carl

case_ "a session is open before the servers die" session carl "carl secret"
kill "${slapds[1]}" && wait "${slapds[1]}" 2>/dev/null
case_ "the first server is dead: the second is asked, by StartTLS" says '^carl$' sql carl "carl secret" 'select current_user'
kill "${slapds[2]}" && wait "${slapds[2]}" 2>/dev/null
printf 'MSH|^~\\&|HIS|NORTH|HUB|X|20260101120000||ADT^A01^ADT_A01|C1|P|2.5\rEVN|A01|20260101\rPID|1||7^^^A||SAMPLE^ANN\rPV1|1|I|ICU^1^2\r' >message.hl7
case_ "both are dead: a user of the directory is refused with the words for a wrong password" refuses 'password authentication failed for user "carl"' sql carl "carl secret" 'select 1'
case_ "local users log in" says '^ann$' sql ann "local secret" 'select current_user'
case_ "messages are taken" says 'MSA|AA|C1' "$terrace" message send message.hl7 --to "$mllp"
trouble() { "$terrace" status >status.log; [ $? -eq 1 ] && grep -q '^directory since' status.log; }
case_ "the status has the trouble, with what to do" eval 'await trouble && grep -q "terrace user ldap" status.log'
goes_on() { echo "select 'still';" >&3 && await grep -q still session.log; }
case_ "an open session goes on meanwhile" goes_on
exec 3>&-
one
case_ "the first server is back" await up "$one_port"
in_again() { sql carl "carl secret" 'select current_user' 2>/dev/null | grep -q '^carl$'; }
case_ "its users log in again" await in_again
case_ "the trouble is over" await eval '"$terrace" status >/dev/null'
case_ "the password is taken back to this node" eval '"$terrace" user password carl --password-file local.password && sql carl "local secret" "select 1"'
case_ "and does not count in the directory any more" refuses 'password authentication failed' sql carl "carl secret" 'select 1'
case_ "the log has no password" eval '! grep -E "carl secret|dora secret|service secret" log'
case_ "the node stops" "$terrace" stop
wait "$pid" 2>/dev/null
pid=
tell
