#!/usr/bin/env bash
# Tests the packages as an administrator meets them: makes a .deb and an OCI image of the real binary, installs the package, makes
# settings, sends a message to what the unit starts, upgrades while a client waits, removes and purges it; then runs the image's files.
# All of it happens in a copy of this machine: an overlay over /, with its own mounts, processes and network, which goes with the script.
# It needs root, Debian's dpkg and systemd (not as process 1), and a kernel that mounts overlays. README.md has the rules for scripts.
set -uo pipefail
cd "$(dirname "$0")/.."
skip() {
    echo "skipped: $1"
    echo "0 passed, 0 failed"
    exit 0
}
[ "$(id -u)" -eq 0 ] || skip "installing a package needs root"
for command in dpkg-deb systemd-socket-activate unshare runuser python3 objdump strip; do
    command -v "$command" >/dev/null || skip "there is no $command"
done
dpkg-query -W libc6 >/dev/null 2>&1 || skip "this is no Debian machine"

place=$(mktemp -d)
trap 'rm -rf --one-file-system "$place"' EXIT
trap 'exit 1' INT TERM
overlay='mount -t tmpfs none "$0" && mkdir "$0/upper" "$0/work" "$0/root" &&
    mount -t overlay overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" "$0/root"'
mkdir "$place/copy" "$place/bring"
unshare --mount --pid --fork --net bash -c "$overlay" "$place/copy" 2>"$place/refused" ||
    skip "no copy of this machine: $(head -n 1 "$place/refused")"

export TERRACE=${TERRACE:-${CARGO_TARGET_DIR:-target}/release/terrace} DEB_COMPRESSION=none
version=$(${TERRACE} --version | sed -n 's/^terrace //p')
build() {
    "$@" >"$place/build.log" 2>&1 || {
        cat "$place/build.log"
        echo "FAIL  $*"
        echo "0 passed, 1 failed"
        exit 1
    }
}
build scripts/package-deb.sh "$place/packages"
mv "$(tail -n 1 "$place/build.log")" "$place/bring/old.deb"
VERSION=$version+1 build scripts/package-deb.sh "$place/packages"
mv "$(tail -n 1 "$place/build.log")" "$place/bring/new.deb"
refused=0
GLIBC_MAX=2.2 scripts/package-deb.sh "$place/packages" >"$place/build.log" 2>&1 && refused=1
grep -q 'needs glibc' "$place/build.log" || refused=1
build scripts/package-oci.sh "$place/packages"
layout=$(tail -n 1 "$place/build.log")

# Other programs read the image too: skopeo copies it to what docker loads, umoci unpacks it. `taken` is empty, or says what went wrong.
taken="skopeo and umoci cannot be installed"
command -v skopeo >/dev/null && command -v umoci >/dev/null ||
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends skopeo umoci >/dev/null 2>&1
if command -v skopeo >/dev/null && command -v umoci >/dev/null; then
    taken=$({ skopeo copy -q "oci:$layout:$version" "docker-archive:$place/docker.tar:terrace:$version" &&
        tar -tf "$place/docker.tar" manifest.json && umoci unpack --image "$layout:$version" "$place/bundle" &&
        [ "$("$place/bundle/rootfs/usr/bin/terrace" --version)" = "terrace $version" ] &&
        grep -q '"uid": *65532' "$place/bundle/config.json"; } 2>&1 >/dev/null) && taken= || taken=${taken:-they refuse it}
    rm -rf "$place/bundle" "$place/docker.tar"
fi
mkdir "$place/bring/image"
python3 - "$layout" "$place/bring/image" <<'END'
import json, os, sys, tarfile
layout, target = sys.argv[1:]
blob = lambda described: os.path.join(layout, "blobs/sha256", described["digest"].split(":")[1])
manifest = json.load(open(blob(json.load(open(os.path.join(layout, "index.json")))["manifests"][0])))
with tarfile.open(blob(manifest["layers"][0])) as layer:
    if hasattr(tarfile, "fully_trusted_filter"):
        layer.extraction_filter = tarfile.fully_trusted_filter
    layer.extractall(target, numeric_owner=True)
END
rm -rf "$place/packages"
cp scripts/packages/stand-in.py scripts/packages/inside.sh "$place/bring"

# What is brought is copied into the copy: the folder may lie on another file system than /.
run="$overlay"' && mount -t proc proc "$0/root/proc" && mount --rbind /dev "$0/root/dev" && mkdir -p "$0/root/srv/terrace-test" &&
    cp -a "$1/." "$0/root/srv/terrace-test" && rm -rf "$1" && exec chroot "$0/root" bash /srv/terrace-test/inside.sh /srv/terrace-test'
unshare --mount --pid --fork --kill-child --net bash -c "$run" "$place/copy" "$place/bring" </dev/null >"$place/log" 2>&1
sed '$d' "$place/log"
last=$(tail -n 1 "$place/log")
if [[ ! $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    echo "$last"
    echo "FAIL  it ended without a result"
    echo "0 passed, 1 failed"
    exit 1
fi
passed=${BASH_REMATCH[1]} failed=${BASH_REMATCH[2]}
if [ "$refused" -eq 0 ]; then
    echo "ok    a program that needs a newer glibc than allowed is refused"
    passed=$((passed + 1))
else
    echo "FAIL  a program that needs a newer glibc than allowed is refused"
    failed=$((failed + 1))
fi
case $taken in
'')
    echo "ok    skopeo makes an archive for docker of the image, and umoci a bundle whose program runs"
    passed=$((passed + 1))
    ;;
*installed) echo "skipped: $taken" ;;
*)
    echo "FAIL  skopeo and umoci take the image: $taken"
    failed=$((failed + 1))
    ;;
esac
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
