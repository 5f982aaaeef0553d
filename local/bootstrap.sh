#!/bin/sh
# Makes the virtual environment from the lock, with this project in it as an editable package: bootstrap.sh VENV LOCK. It
# runs at the project's root; a second call with the same lock and the same pyproject.toml does nothing.
set -eu
venv=$1
lock=$2

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

in_range() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null
}

find_python() {
    for candidate in ${PYTHON3:-} python3 python3.12 python3.11 python3.13; do
        if command -v "$candidate" >/dev/null && in_range "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "no Python 3.11, 3.12 or 3.13 found; install one (Debian, Ubuntu: apt install python3 python3-venv) or name it with PYTHON3=/path/to/python3"
}

# Its programs and the editable package have the folder in them, and its packages are those of one Python.
made_for() {
    printf '%s %s\n' "$(pwd -P)" "$("$venv/bin/python" --version 2>/dev/null)"
}

# Two at once would clear each other's environment; where there is no flock, they may.
exec 9<"$lock"
flock 9 2>/dev/null || :

stamp="$venv/lock-$(cat "$lock" requirements*.txt pyproject.toml | sha256sum | cut -c1-16)"
if [ "$(cat "$stamp" 2>/dev/null)" = "$(made_for)" ]; then
    exit 0
fi

if [ "$(cat "$venv"/lock-* 2>/dev/null)" != "$(made_for)" ]; then
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python cannot make virtual environments; install its venv module (Debian, Ubuntu: apt install python3-venv)"
    echo "Creating the virtual environment $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
fi
advice="the reason is above; if the Python package index can't be reached, name a mirror with PIP_INDEX_URL"
echo "Installing uv"
sed -n '/^uv==/,/[^\\]$/p' "$lock" |
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r /dev/stdin ||
    fail "the uv of $lock could not be installed; $advice"
echo "Installing the locked packages and compiling them (about a minute)"
"$venv/bin/uv" pip install --python "$venv/bin/python" --compile-bytecode --only-binary :all: --require-hashes -r "$lock" ||
    fail "the packages of $lock could not be installed; $advice"
# The lock has what builds the project, so the build fetches nothing.
"$venv/bin/uv" pip install --python "$venv/bin/python" --quiet --no-deps --no-build-isolation --editable . ||
    fail "the project itself could not be installed"
rm -f "$venv"/lock-*
made_for >"$stamp"
