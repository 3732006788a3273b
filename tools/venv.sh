#!/bin/sh
# Brings .venv to the wanted state and says nothing when it is there already.
#   bare  Python and pip only
#   run   requirements.lock and this project
#   dev   requirements-dev.lock (which contains requirements.lock) and this project
# .venv/.state records what was installed, by checksum. An interrupted installation leaves
# .venv.installing behind, and the next call starts .venv afresh.
set -eu
want=$1
cd "$(dirname "$0")/.."
unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX
state=.venv/.state
marker=.venv.installing

fail() {
    echo "error: $*" >&2
    exit 1
}

checksum() { cksum <"$1" | tr ' ' '-'; }
recorded() { sed -n "s/^$1=//p" "$state" 2>/dev/null | tail -n 1; }
record() { echo "$1=$2" >>"$state"; }

# An environment holds absolute paths, so a moved or copied folder needs its own.
usable() {
    [ -f "$state" ] && [ "$(recorded place)" = "$PWD" ] &&
        { [ -z "${PYTHON:-}" ] || [ "$(recorded python)" = "$PYTHON" ]; } &&
        .venv/bin/python -c '' 2>/dev/null &&
        unchanged run requirements.lock && unchanged dev requirements-dev.lock
}

# Rebuilding on a changed lock, instead of installing over it, drops what the lock dropped.
unchanged() { [ -z "$(recorded "$1")" ] || [ "$(recorded "$1")" = "$(checksum "$2")" ]; }

has_lock() {
    case $want in
    bare) true ;;
    run) [ -n "$(recorded run)$(recorded dev)" ] ;;
    dev) [ -n "$(recorded dev)" ] ;;
    esac
}

has_project() {
    [ "$want" = bare ] || [ "$(recorded project)" = "$(checksum pyproject.toml)" ]
}

# A killed process that nobody has waited for (a zombie) still answers to kill -0.
alive() {
    [ -n "$1" ] && kill -0 "$1" 2>/dev/null &&
        ! grep -qs '^State:[[:space:]]*Z' "/proc/$1/status"
}

# Two makes in one folder: the second waits. A dead owner means an interrupted installation.
claim() {
    told=''
    until (set -C && echo $$ >"$marker") 2>/dev/null; do
        owner=$(cat "$marker" 2>/dev/null || true)
        if alive "$owner"; then
            [ -n "$told" ] || echo "Waiting for process $owner, which installs into .venv" \
                "(if it does not: rm $marker) ..."
            told=yes
            sleep 1
        else
            echo "The last installation did not finish; starting .venv afresh."
            rm -rf .venv "$marker"
        fi
    done
}

create() {
    if ! python=$(tools/find-python.sh); then
        rm -f "$marker"
        exit 1
    fi
    echo "Creating .venv with $python ..."
    rm -rf .venv
    "$python" -m venv .venv || fail "$python could not create a virtual environment (see above)." \
        "On Debian and Ubuntu: sudo apt install python3-venv"
    record place "$PWD"
    record python "${PYTHON:-}"
}

pip() {
    .venv/bin/python -m pip --disable-pip-version-check --no-input install --quiet "$@"
}

install_lock() {
    if [ "$want" = dev ]; then lock=requirements-dev.lock; else lock=requirements.lock; fi
    echo "Installing packages from $lock (about a minute, up to 1 GB on disk) ..."
    pip --require-hashes -r "$lock" || fail "installing $lock failed (see above)." \
        "Ready-made packages exist for Python 3.11 to 3.14 on Linux and on Macs with Apple silicon."
    record "$want" "$(checksum "$lock")"
}

install_project() {
    pip --no-build-isolation --no-deps -e . || fail "installing the project itself failed (see above)."
    record project "$(checksum pyproject.toml)"
}

case $want in
bare | run | dev) ;;
*) fail "tools/venv.sh: unknown state '$want'; one of bare, run, dev" ;;
esac
if [ ! -e "$marker" ] && usable && has_lock && has_project; then exit 0; fi
claim
usable || create
has_lock || install_lock
has_project || install_project
rm -f "$marker"
