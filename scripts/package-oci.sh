#!/usr/bin/env bash
# Makes an OCI image of a program that is built, without a daemon: scripts/package-oci.sh [FOLDER]    (default: target/packages)
#
#   TERRACE, TERRACE_LAB, VERSION, GLIBC_MAX   as in package-deb.sh
#
# FOLDER gets terrace_VERSION_ARCH.oci (a layout) and terrace_VERSION_ARCH.oci.tar. The image has the program, the files of this machine's
# glibc that it is linked with, settings for /data and the example production; no shell, no package manager. It runs as 65532 and needs
# nothing but /data to write to:
#
#   skopeo copy oci-archive:terrace_0.1.0_amd64.oci.tar docker-daemon:terrace:0.1.0        # or: podman load -i ..
#   docker run --read-only --tmpfs /tmp -v terrace:/data -p 127.0.0.1:2575:2575 --security-opt seccomp=unconfined terrace:0.1.0
#
# Docker's own seccomp profile refuses io_uring: without the last option the node works, and batches go one by one.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/package-lib.sh
need ldd libc-bin

out=$(realpath -m "${1:-${CARGO_TARGET_DIR:-target}/packages}")
check_glibc
root=$work/root
mkdir -p "$root"/{data,tmp,proc,sys,dev,etc/terrace} "$out"
chmod 755 "$root" "$root"/{proc,sys,dev,etc,etc/terrace}
chmod 700 "$root/data"
chmod 1777 "$root/tmp"

put_program "$terrace" /usr/bin/terrace
[ -z "$lab" ] || put_program "$lab" /usr/bin/terrace-lab
# The libraries that it names, the loader among them, at the paths where the loader looks for them. A static program has none.
for library in $(ldd "$terrace" 2>/dev/null | grep -o '/[^ ]*' | sort -u || true); do
    put 0755 "$(realpath "$library")" "$library"
done
echo "terrace:x:65532:65532::/data:/nonexistent" >"$work/passwd"
echo "terrace:x:65532:" >"$work/group"
put 0644 "$work/passwd" /etc/passwd
put 0644 "$work/group" /etc/group
# The same settings and production as `terrace init` writes, for the folders of the image. In a container all addresses are the
# container's: what is reached from outside is decided where its ports are published.
"$terrace" init "$work/new" >/dev/null
sed -e 's#^data = .*#data = "/data"#' -e 's#^production = .*#production = "/etc/terrace/production"#' "$work/new/terrace.toml" >"$work/settings"
put 0644 "$work/settings" /etc/terrace/terrace.toml
cp -r "$work/new/production" "$root/etc/terrace/production"
sed -i -e 's#^listen = .*#listen = "0.0.0.0:2575"\nplaintext = true      \# the container'"'"'s own network; TLS: [tls], docs/configuration.md#' \
    "$root/etc/terrace/production/services/inbound.toml"
sed -i -e 's#^folder = .*#folder = "/data/archive"#' "$root/etc/terrace/production/operations/archive.toml"
"$terrace" production check "$root/etc/terrace/production" >/dev/null
python3 packaging/notices.py "$work/notices" >/dev/null
put 0644 "$work/notices/copyright" /usr/share/doc/terrace/copyright
gzip -9nc "$work/notices/licences" >"$work/licences.gz"
put 0644 "$work/licences.gz" /usr/share/doc/terrace/licences.gz

layout=$out/terrace_${version}_$arch.oci
rm -rf "$layout" "$layout.tar"
python3 packaging/oci.py make "$root" "$layout" "$arch" "$version"
python3 packaging/oci.py check "$layout"
if command -v skopeo >/dev/null; then
    skopeo inspect "oci:$layout:$version" >/dev/null
fi
echo "$layout"
