#!/usr/bin/env bash
# Makes a Debian package of a program that is built: scripts/package-deb.sh [FOLDER]    (default: target/packages)
#
#   TERRACE          the program; default target/release/terrace (or below CARGO_TARGET_DIR)
#   TERRACE_LAB      terrace-lab, which `terrace bench` starts; default: not in the package
#   VERSION          of the package; default: what the program says
#   GLIBC_MAX        refuse a program that needs a newer glibc, for example 2.31
#   DEB_COMPRESSION  xz (default), gzip, zstd or none
#
# The last line of its output is the path of the package. The program is run, to print its manual pages and completions. The unit is
# checked by systemd-analyze if that is there.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/package-lib.sh
need dpkg-deb dpkg
need gzip gzip

out=$(realpath -m "${1:-${CARGO_TARGET_DIR:-target}/packages}")
check_glibc
[ -n "$glibc" ] || echo "the program is static: it needs no glibc"
root=$work/root
mkdir -p "$root" "$out"
chmod 755 "$root"

put_program "$terrace" /usr/bin/terrace
[ -z "$lab" ] || put_program "$lab" /usr/bin/terrace-lab
put 0644 packaging/terrace.service /usr/lib/systemd/system/terrace.service
put 0644 packaging/terrace.socket /usr/lib/systemd/system/terrace.socket
put 0644 packaging/terrace.sysusers /usr/lib/sysusers.d/terrace.conf
put 0644 packaging/terrace.tmpfiles /usr/lib/tmpfiles.d/terrace.conf
put 0644 packaging/terrace.default /etc/default/terrace

"$terrace" man-pages "$work/man" >/dev/null
for page in "$work"/man/*.1; do
    gzip -9n "$page"
    put 0644 "$page.gz" "/usr/share/man/man1/$(basename "$page").gz"
done
for shell in bash zsh fish; do
    "$terrace" completions "$shell" >"$work/$shell"
done
put 0644 "$work/bash" /usr/share/bash-completion/completions/terrace
put 0644 "$work/zsh" /usr/share/zsh/vendor-completions/_terrace
put 0644 "$work/fish" /usr/share/fish/vendor_completions.d/terrace.fish

python3 packaging/notices.py "$work/notices"
gzip -9n "$work/notices/licences"
put 0644 "$work/notices/copyright" /usr/share/doc/terrace/copyright
put 0644 "$work/notices/licences.gz" /usr/share/doc/terrace/licences.gz
gzip -9nc CHANGELOG.md >"$work/changelog.gz"
put 0644 "$work/changelog.gz" /usr/share/doc/terrace/changelog.gz

if command -v systemd-analyze >/dev/null; then
    # The program lies elsewhere while it is checked.
    mkdir "$work/unit"
    sed 's#/usr/bin/terrace#/bin/true#' packaging/terrace.service >"$work/unit/terrace.service"
    cp packaging/terrace.socket "$work/unit"
    systemd-analyze verify --man=no "$work/unit/terrace.service" "$work/unit/terrace.socket" >"$work/verified" 2>&1 ||
        fail "systemd-analyze verify: $(cat "$work/verified")"
    [ ! -s "$work/verified" ] || fail "systemd-analyze verify: $(cat "$work/verified")"
    # An exposure of 2.0 or more (of 10) means that something is open again.
    systemd-analyze security --offline=yes --threshold=20 "$work/unit/terrace.service" >"$work/security" 2>&1 ||
        fail "systemd-analyze security: $(tail -n 2 "$work/security")"
    tail -n 1 "$work/security" | sed 's/^[^A-Za-z]*/unit: /'
else
    echo "the unit is not checked: there is no systemd-analyze"
fi

mkdir "$root/DEBIAN"
chmod 755 "$root/DEBIAN"
install -m 0755 packaging/debian/{postinst,prerm,postrm} "$root/DEBIAN"
echo /etc/default/terrace >"$root/DEBIAN/conffiles"
depends="passwd${glibc:+, libc6 (>= $glibc), libgcc-s1}"
cat >"$root/DEBIAN/control" <<END
Package: terrace
Version: $version
Architecture: $arch
Maintainer: ${MAINTAINER:-Terrace contributors <terrace@localhost>}
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f 1)
Depends: $depends
Recommends: systemd
Section: database
Priority: optional
Description: HL7 v2 interface engine, SQL database, search server, block volumes
 Terrace stores HL7 v2 messages durably before it acknowledges them, routes and
 transforms them, and answers SQL and searches over them. Each structure of its
 store lies on the medium that is chosen for it.
 .
 Nothing runs after the installation: terrace init --system makes settings and
 a production to begin with.
END
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
chmod 644 "$root"/DEBIAN/{control,conffiles,md5sums}
package=$out/terrace_${version}_$arch.deb
dpkg-deb --root-owner-group -Z"${DEB_COMPRESSION:-xz}" --build "$root" "$package" >/dev/null
echo "terrace $version for $arch${glibc:+, glibc $glibc or later}: $(du -h "$package" | cut -f 1)"
echo "$package"
