# Functions of test-dax-guest.sh and test-volume-guest.sh: they build the guest and start it. This file is sourced, not run.
#
#   $guest    cache, kept between runs: the kernel package and its unpacked files
#   $place    files of this run: initramfs, the file of the module, disk, serial logs
#
# The processor is emulated (TCG) with all features that QEMU can emulate (`-cpu max`), among them clwb. KVM is not used:
# on some hosts it opens and then hangs, and a guest that runs ten seconds does not need it. The guest shows behaviour,
# never speed.

# Sets $sudo to the prefix that runs a command as root.
become_root() {
    sudo=()
    [ "$(id -u)" -ne 0 ] || return 0
    command -v sudo >/dev/null || give_up "$1 needs root: run it as root or with sudo"
    sudo=(sudo -n)
}

update_packages() {
    become_root "apt-get update"
    "${sudo[@]}" apt-get update -qq || give_up "apt-get update: the Debian mirror is out of reach"
}

# install_packages COMMAND:PACKAGE...: installs the Debian packages of the missing commands, also of those that every guest needs.
install_packages() {
    local missing=() entry
    for entry in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static mkfs.ext4:e2fsprogs cpio:cpio depmod:kmod "$@"; do
        command -v "${entry%%:*}" >/dev/null || missing+=("${entry##*:}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || give_up "missing ${missing[*]}, and this system has no apt-get: install them by hand"
    export DEBIAN_FRONTEND=noninteractive
    update_packages
    # Another installation may hold the lock for some time.
    "${sudo[@]}" apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}" >/dev/null \
        || give_up "cannot install ${missing[*]}"
}

# Prints the package of the newest kernel of the distribution.
kernel_package() {
    apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends:/ { print $2; exit }'
}

# Fetches and unpacks the kernel package once. Sets $kernel and $modules.
fetch_kernel() {
    local name
    mkdir -p "$guest"
    kernel=$(newest_kernel)
    if [ -z "$kernel" ]; then
        if ! compgen -G "$guest/linux-image-*.deb" >/dev/null; then
            name=$(kernel_package)
            if [ -z "$name" ]; then
                update_packages
                name=$(kernel_package)
            fi
            [ -n "$name" ] || give_up "apt knows no linux-image-amd64, so there is no kernel for the guest"
            (cd "$guest" && apt-get download -qq -o APT::Sandbox::User=root "$name") || give_up "cannot download the kernel package $name"
        fi
        rm -rf "$guest/unpack"
        dpkg -x "$(compgen -G "$guest/linux-image-*.deb" | tail -1)" "$guest/unpack" \
            || give_up "the kernel package in $guest cannot be unpacked; delete it"
        depmod -b "$guest/unpack" "$(ls "$guest/unpack/lib/modules")" || give_up "depmod failed"
        rm -rf "$guest/kernel"
        mv "$guest/unpack" "$guest/kernel"
        kernel=$(newest_kernel)
    fi
    modules=$(echo "$guest"/kernel/lib/modules/*)
}

newest_kernel() {
    compgen -G "$guest/kernel/boot/vmlinuz-*" | tail -1
}

# Prints the paths of the named modules and of the modules they depend on; each module follows its dependencies.
# `modprobe --show-depends` would leave out modules that are built into the kernel of this machine.
module_order() {
    awk -v wanted="$*" '
        function base(path) { sub(/.*\//, "", path); sub(/\.ko.*/, "", path); gsub(/-/, "_", path); return path }
        function add(path,    list, n, i) {
            if (path in done) return
            done[path] = 1
            n = split(needs[path], list, " ")
            for (i = n; i >= 1; i--) add(list[i])
            print path
        }
        { split($0, part, ":"); needs[part[1]] = part[2]; named[base(part[1])] = part[1] }
        END { n = split(wanted, name, " "); for (i = 1; i <= n; i++) if (name[i] in named) add(named[name[i]]) }
    ' "$modules/modules.dep"
}

# Copies a program and its shared libraries into the root folder of the guest.
add_program() {
    local program=$1 library
    install -D "$program" "$root/bin/$(basename "$program")"
    ldd "$program" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
        [ -e "$root$library" ] || install -D "$library" "$root$library"
    done
}

# Makes $place/initramfs, for the guest of test-dax-guest.sh.
build_initramfs() {
    modules_wanted="virtio_pci virtio_blk nfit nd_pmem nd_btt dax_pmem device_dax crc32c_generic crc32c_intel ext4 xfs"
    pack_initramfs scripts/dax-guest "$terrace" "$@" "$(command -v ndctl)" "$(command -v mkfs.xfs)" "$(command -v mkfs.ext4)"
}

# pack_initramfs FOLDER PROGRAM...: makes $place/initramfs with these programs, the modules in $modules_wanted, and the scripts of
# the boots in FOLDER.
pack_initramfs() {
    local folder=$1 program module
    shift
    root=$place/root
    mkdir -p "$root"/{bin,lib/modules,proc,sys,dev,tmp,mnt,etc,var/lib}
    cp "$(command -v busybox)" "$root/bin/busybox"
    for program in "$@"; do
        add_program "$program"
    done
    # Debugging information is the largest part of a program, and the guest does not use it.
    [ ! -e "$root/bin/terrace" ] || strip "$root/bin/terrace" 2>/dev/null || true
    # shellcheck disable=SC2086
    for module in $(module_order $modules_wanted); do
        cp "$modules/$module" "$root/lib/modules/"
        basename "$module" >>"$root/lib/modules/order"
    done
    install -m 755 scripts/dax-guest/init "$root/init"
    cp scripts/dax-guest/common.sh "$folder"/boot-*.sh "$root/etc/"
    (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$place/initramfs" || give_up "cannot build the initramfs"
}

# start NAME LOG PERSISTENCE [QEMU ARGUMENT...]: starts a guest that runs boot-NAME.sh and writes its serial console to
# LOG. Sets $guest_pid. PERSISTENCE is the power-fail domain that the machine reports: mem-ctrl, cpu, or empty for none.
start() {
    local name=$1 log=$2 persistence=$3
    shift 3
    : >"$log"
    qemu-system-x86_64 \
        -machine "q35,accel=tcg,nvdimm=on${persistence:+,nvdimm-persistence=$persistence}" -cpu max -smp 1 \
        -m 2G,slots=2,maxmem=8G \
        -object "memory-backend-file,id=module,share=on,mem-path=$place/module,size=1G" \
        -device nvdimm,id=nv1,memdev=module,label-size=256K \
        -drive "file=$place/disk,if=none,id=disk,format=raw" -device virtio-blk-pci,drive=disk \
        -kernel "$kernel" -initrd "$place/initramfs" -append "console=ttyS0 quiet panic=-1 boot=$name" \
        -nodefaults -no-reboot -display none -serial stdio "$@" </dev/null >"$log" 2>&1 &
    guest_pid=$!
}

# await LOG TEXT SECONDS: waits until the guest printed TEXT. Fails if the guest ended before, or after SECONDS.
await() {
    local log=$1 text=$2 deadline=$((SECONDS + $3))
    until grep -q "$text" "$log"; do
        if ! kill -0 "$guest_pid" 2>/dev/null; then
            # The guest may have printed the text just before it ended.
            grep -q "$text" "$log"
            return
        fi
        [ $SECONDS -lt $deadline ] || return 1
        sleep 0.1
    done
}

# Cuts the power: the guest receives no notice.
cut_power() {
    kill -9 "$guest_pid" 2>/dev/null
    wait "$guest_pid" 2>/dev/null
    guest_pid=
}
