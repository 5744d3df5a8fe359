#!/bin/sh
# A thin volume on small file systems that others fill to the last byte: what was acknowledged finds its place.
# Needs root, to mount images of a few hundred MiB; a file system whose tools are missing is left out.
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
cleanup() {
    umount "$folder/mnt" 2>/dev/null || true
    rm -rf "$folder"
}
trap cleanup EXIT INT TERM
mkdir "$folder/mnt"
for kind in ext4 xfs tmpfs; do
    case $kind in
    tmpfs) mount -t tmpfs -o size=128m none "$folder/mnt" || continue ;;
    *)
        command -v "mkfs.$kind" >/dev/null || { echo "$kind: left out, there is no mkfs.$kind"; continue; }
        rm -f "$folder/image"
        # xfs has images of 300 MiB at least.
        truncate -s 320M "$folder/image"
        "mkfs.$kind" -q "$folder/image"
        mount -o loop "$folder/image" "$folder/mnt" || { echo "$kind: left out, it cannot be mounted"; continue; }
        ;;
    esac
    echo "on $kind"
    TERRACE_SMALL_FOLDER="$folder/mnt" ${THIN_TEST:-cargo test -q -p volume --test main --} \
        on_a_file_system_that_is_full_to_the_last_byte --nocapture
    umount "$folder/mnt"
done
