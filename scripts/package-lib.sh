# Functions of the scripts that make packages. This file is sourced in the root of the checkout, not run. It sets `terrace` (the
# program), `lab` (terrace-lab, or nothing), `work` (a folder that is removed at the end), `version` and `arch` (of the package), and
# SOURCE_DATE_EPOCH and the umask, so that the same program makes the same package.

umask 022

fail() {
    echo "$0: $*" >&2
    exit 1
}

need() {
    command -v "$1" >/dev/null || fail "there is no $1: apt install $2"
}

need objdump binutils
need python3 python3
terrace=$(realpath -m "${TERRACE:-${CARGO_TARGET_DIR:-target}/release/terrace}")
lab=${TERRACE_LAB:+$(realpath -m "$TERRACE_LAB")}
[ -x "$terrace" ] || fail "there is no $terrace; build it with cargo build --release, or set TERRACE"
[ -z "$lab" ] || [ -x "$lab" ] || fail "there is no $lab"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

version=${VERSION:-$("$terrace" --version | sed -n 's/^terrace //p')}
[[ $version =~ ^[0-9][0-9A-Za-z.+~-]*$ ]] || fail "\`$version\` is no version of a package"
# The machine that the program is for, in Debian's and in OCI's words alike.
case $(readelf -h "$terrace" | sed -n 's/^ *Machine: *//p') in
    *X86-64*) arch=amd64 ;;
    AArch64) arch=arm64 ;;
    *) fail "the program is for another machine than amd64 and arm64" ;;
esac
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}

# glibc_of FILE...: the newest version of glibc whose symbols they need, as 2.31; nothing for a static program.
glibc_of() {
    objdump -T "$@" 2>/dev/null | sed -n 's/.*(\?GLIBC_\([0-9.]*\))\?.*/\1/p' | sort -Vu | tail -n 1
}

# check_glibc: sets `glibc`. A package that promises an older glibc than its program needs would install and not run: GLIBC_MAX is the
# newest one that may be needed.
check_glibc() {
    glibc=$(glibc_of "$terrace" ${lab:+"$lab"})
    if [ -n "${GLIBC_MAX:-}" ] && [ "$(printf '%s\n' "$glibc" "$GLIBC_MAX" | sort -V | tail -n 1)" != "$GLIBC_MAX" ]; then
        fail "the program needs glibc $glibc, and GLIBC_MAX is $GLIBC_MAX: build it against that one (docs/installing.md, \"Older systems\")"
    fi
}

# put MODE SOURCE TARGET: a file of the package, below $root.
put() {
    install -D -m "$1" "$2" "$root$3"
}

# put_program SOURCE TARGET: without symbols and line tables, which are most of its size.
put_program() {
    install -d "$(dirname "$root$2")"
    strip --strip-all -o "$root$2" "$1"
    chmod 0755 "$root$2"
}
