#!/bin/sh
# Installs the Debian/Ubuntu packages that the tests use. Needs root; without
# it, or when a package cannot be had, the tests that need it skip and say so.
packages="gcc g++ libc6-dev pkg-config libcmocka-dev spin valgrind clang clang-tidy cppcheck
    openmpi-bin libopenmpi-dev"

installed() {
    dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'
}

missing() {
    for package in "$@"; do
        installed "$package" || printf '%s ' "$package"
    done
}

# All at once; when that fails one by one, so that one bad name costs only itself.
install() {
    export DEBIAN_FRONTEND=noninteractive
    options="-y -q --no-install-recommends -o DPkg::Lock::Timeout=120"
    # shellcheck disable=SC2086 # both are lists of words
    apt-get install $options "$@" && return
    for package in "$@"; do
        # shellcheck disable=SC2086
        apt-get install $options "$package" || echo "setup: $package could not be installed" >&2
    done
}

# Where clang keeps its sanitizers; the package's name carries clang's version.
sanitizers() {
    major=$(clang -dumpversion 2>/dev/null | cut -d. -f1)
    [ -n "$major" ] && echo "libclang-rt-$major-dev"
}

command -v apt-get >/dev/null || exit 0
# shellcheck disable=SC2046,SC2086 # lists of words
wanted=$(missing $packages $(sanitizers))
[ -z "$wanted" ] && exit 0
if [ "$(id -u)" != 0 ]; then
    echo "setup: not root, so these packages stay missing: $wanted"
    exit 0
fi

mkdir -p .setup
echo "setup: installing $wanted..."
{
    apt-get update -q
    # shellcheck disable=SC2086
    install $wanted
    # shellcheck disable=SC2046
    wanted=$(missing $(sanitizers))
    # shellcheck disable=SC2086
    [ -z "$wanted" ] || install $wanted
} >.setup/apt.log 2>&1 </dev/null || echo "setup: some packages are missing, see .setup/apt.log"
exit 0
