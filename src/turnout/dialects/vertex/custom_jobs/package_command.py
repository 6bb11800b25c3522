"""The command line that installs a job's Python packages and runs its module, as Google's own images do."""

from collections.abc import Sequence

DIRECTORY = "/opt/packages"
"""Contains one directory for each package."""

# Uses a prefix instead of --target, which would install again what the interpreter already has. The directory below the
# prefix depends on the distribution. A build without isolation needs no network; if it fails, pip isolates the build.
# Each package is built and installed once, even if the interpreter has it. If it requires others, pip runs again with
# its name: with its file, pip would build it a second time. A replica that starts again has the same home, and installs
# nothing unless a file has changed.
_SCRIPT = r"""
directory=$TURNOUT_ROOT$1 count=$2 module=$3
shift 3
prefix=${HOME:-/tmp}/.packages
log=${TMPDIR:-/tmp}/.pip.log
files= sources=
number=1
while [ "$number" -le "$count" ]; do
    eval "file=\${$number}"
    case $file in *.whl) ;; *) sources=yes ;; esac
    files="$files \"\$directory/\${$number}\""
    number=$((number + 1))
done
pip_install() {
    python3 -m pip --disable-pip-version-check --no-input install --prefix "$prefix" --no-warn-script-location "$@"
}
install() {
    if [ -z "$sources" ]; then pip_install "$@"; return; fi
    if pip_install --no-build-isolation "$@" >"$log" 2>&1; then cat "$log"; return; fi
    pip_install "$@" || { cat "$log" >&2; return 1; }
}
find_packages() {
    requiring=
    for place in "$prefix"/lib/python3*/site-packages "$prefix"/local/lib/python3*/dist-packages \
        "$prefix"/lib/python3*/dist-packages "$prefix"/lib64/python3*/site-packages; do
        [ -d "$place" ] || continue
        case ":${PYTHONPATH:-}:" in *":$place:"*) ;; *) PYTHONPATH=$place${PYTHONPATH:+:$PYTHONPATH} ;; esac
        for info in "$place"/*-info; do
            grep -qs "^Requires-Dist:" "$info/METADATA" || [ -s "$info/requires.txt" ] || continue
            name=${info##*/} name=${name%.*-info} name=${name%-py3*}
            requiring="$requiring ${name%-*}==${name##*-}"
        done
    done
    export PYTHONPATH
}
if ! version=$(python3 -c "import pip, sys; print(sys.version)" 2>/dev/null); then
    echo "cannot install the packages of this job: python3 has no pip" >&2
    exit 1
fi
eval "sums=\$(sha256sum $files 2>/dev/null)"
if [ -z "$sums" ] || [ "$version $sums" != "$(cat "$prefix/installed" 2>/dev/null)" ]; then
    rm -rf "$prefix"
    eval "install --ignore-installed --no-deps $files" || exit
    find_packages
    if [ -n "$requiring" ]; then install $requiring || exit; fi
    echo "$version $sums" >"$prefix/installed"
fi
find_packages
shift "$count"
PATH=$prefix/bin:$prefix/local/bin:$PATH
export PATH
exec python3 -m "$module" "$@"
"""


def command(files: Sequence[str], module: str, args: Sequence[str]) -> tuple[str, ...]:
    """`files` are paths below DIRECTORY. The exit code is the module's, or pip's if a package cannot be installed."""
    return ("/bin/sh", "-c", _SCRIPT, "packages", DIRECTORY, str(len(files)), module, *files, *args)
