#!/bin/sh
# Prints the path of a Python >= 3.11 that can make virtual environments.
# $PYTHON, when set, is the only candidate. Otherwise every match on the PATH is tried, not
# just the first: version managers leave launchers there that fail when called.
set -eu

too_old=''
no_venv=''
debian_package=python3-venv

consider() {
    # Launchers of an uninstalled version fail here and are passed over.
    version=$("$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' </dev/null 2>/dev/null) ||
        return 1
    if ! "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' </dev/null 2>/dev/null; then
        too_old="$too_old  $1 is Python $version
"
    elif ! "$1" -c 'import ensurepip, venv; ensurepip.version()' </dev/null >/dev/null 2>&1; then
        no_venv="$no_venv  $1 is Python $version
"
        debian_package="python${version%.*}-venv"
    else
        echo "$1"
        exit 0
    fi
    return 1
}

search_path() {
    for name in python3.13 python3.12 python3.11 python3.14 python3 python; do
        old_ifs=$IFS
        IFS=:
        for folder in $PATH; do
            IFS=$old_ifs
            if [ -f "$folder/$name" ] && [ -x "$folder/$name" ]; then
                consider "$folder/$name" || true
            fi
        done
        IFS=$old_ifs
    done
}

explain() {
    if [ -n "$no_venv" ]; then
        echo "error: Python is new enough, but its modules venv and ensurepip are missing:"
        printf '%s' "$no_venv"
        echo "On Debian and Ubuntu: sudo apt install $debian_package"
        echo "Elsewhere: install a complete Python >= 3.11 (python.org, Homebrew, pyenv, conda)."
    elif [ -n "$too_old" ]; then
        echo "error: tasid needs Python 3.11 or newer; found only:"
        printf '%s' "$too_old"
        echo "Install Python 3.11, 3.12 or 3.13 (Debian and Ubuntu: python3 and python3-venv;"
        echo "macOS: brew install python@3.13), or name one: make PYTHON=/path/to/python3.12 ..."
    else
        echo "error: tasid needs Python 3.11 or newer; found no working Python${PYTHON:+ as PYTHON=$PYTHON}."
        echo "Install Python 3.11, 3.12 or 3.13 (Debian and Ubuntu: python3 and python3-venv;"
        echo "macOS: brew install python@3.13), or name one: make PYTHON=/path/to/python3.12 ..."
    fi
}

if [ -n "${PYTHON:-}" ]; then
    if chosen=$(command -v "$PYTHON" 2>/dev/null); then consider "$chosen" || true; fi
else
    search_path
fi
explain >&2
exit 1
