#!/usr/bin/env bash
# Tests the release binary on a real Linux persistent-memory stack. QEMU emulates an NVDIMM (software emulation, no KVM),
# whose content is a file that survives the guest. There are three boots:
#
#   adr       tier list and tier apply; the journal of a node on XFS, mapped with MAP_SYNC; a message; then qemu is killed
#   eadr      the message is read back, verify reports no damage; eADR is detected; a poisoned page becomes an error
#   unknown   an unreported domain is treated as ADR; far memory is listed; a disk is refused as persistent memory
#
# The script installs missing Debian packages. It fetches the kernel of the guest once and keeps it in
# ${TERRACE_CACHE:-~/.cache/terrace}/dax-guest. This test cannot find a missing write-back: the stores of a guest reach
# the file with or without it. The crash simulation of crate device finds such faults.
set -uo pipefail
cd "$(dirname "$0")/.."

passed=0
failed=0
guest_pid=
place=$(mktemp -d)
clean_up() {
    [ -z "$guest_pid" ] || kill -9 "$guest_pid" 2>/dev/null
    rm -rf "$place"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

ok() {
    echo "ok $*"
    passed=$((passed + 1))
}
fail() {
    echo "FAILED $*"
    failed=$((failed + 1))
}
finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}
# A machine that cannot run this test fails it: no other test covers these cases.
give_up() {
    fail "$*"
    finish
}

[ "$(uname -m)" = x86_64 ] || give_up "the guest runs programs of this machine, and it is made for x86_64"
# Some of the tools are in the folders of the administrator.
PATH=$PATH:/usr/sbin:/sbin
guest=${TERRACE_CACHE:-$HOME/.cache/terrace}/dax-guest
# shellcheck source=scripts/dax-guest/lib.sh
. scripts/dax-guest/lib.sh

terrace=$(realpath -m "${TERRACE:-${CARGO_TARGET_DIR:-target}/release/terrace}")
[ -x "$terrace" ] || give_up "there is no $terrace; build it with cargo build --release"
dax_check=${CARGO_TARGET_DIR:-target}/release/examples/dax_check
cargo build --release --quiet -p journal --example dax_check || give_up "cannot build the example dax_check"
install_packages mkfs.xfs:xfsprogs ndctl:ndctl
fetch_kernel
build_initramfs "$dax_check"
# A file of zeros is a module that was never used.
truncate -s 1G "$place/module"
truncate -s 512M "$place/disk"

# Counts the cases of a boot and shows their output.
count() {
    local log=$1 lines
    lines=$(tr -d '\r' <"$log" | sed -n 's/^CASE //p')
    passed=$((passed + $(grep -c '^ok' <<<"$lines")))
    failed=$((failed + $(grep -c '^FAILED' <<<"$lines")))
    if grep -q '^FAILED' <<<"$lines"; then tr -d '\r' <"$log"; else echo "$lines"; fi
}

echo "boot adr: a blank module, the power-fail domain is the memory controller"
start adr "$place/adr" mem-ctrl
if await "$place/adr" "HOST cut the power" 120; then
    cut_power
    count "$place/adr"
    ok "the power was cut right after the acknowledgement"
else
    cut_power
    count "$place/adr"
    tail -40 "$place/adr"
    give_up "the first boot did not reach the power cut in 120 s"
fi

# boot NAME PERSISTENCE [QEMU ARGUMENT...]: runs a boot that ends by itself.
boot() {
    start "$@"
    if await "$2" "GUEST DONE" 120; then
        cut_power
        count "$2"
    else
        cut_power
        count "$2"
        tail -40 "$2"
        fail "boot $1 did not end in 120 s"
    fi
}

echo "boot eadr: the same module, the CPU caches are in the power-fail domain too"
boot eadr "$place/eadr" cpu
echo "boot unknown: the machine does not report its domain; a second node has memory only"
boot unknown "$place/unknown" "" \
    -object memory-backend-ram,id=near,size=1G -object memory-backend-ram,id=far,size=1G \
    -numa node,nodeid=0,cpus=0,memdev=near -numa node,nodeid=1,memdev=far
finish
