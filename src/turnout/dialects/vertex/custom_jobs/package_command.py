"""The command line that installs a job's Python packages and runs its module, as Google's own images do."""

from collections.abc import Sequence

DIRECTORY = "/opt/packages"
"""Where the packages are, each in a directory of its own."""

# Into a prefix and not with --target, which would fetch again what the interpreter has already. Where that prefix has
# its packages depends on the distribution. Building without isolation needs no network; what cannot be built so is
# built with it.
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
    for place in "$prefix"/lib/python3*/site-packages "$prefix"/local/lib/python3*/dist-packages \
        "$prefix"/lib/python3*/dist-packages "$prefix"/lib64/python3*/site-packages; do
        case ":${PYTHONPATH:-}:" in *":$place:"*) continue ;; esac
        if [ -d "$place" ]; then PYTHONPATH=$place${PYTHONPATH:+:$PYTHONPATH}; fi
    done
    export PYTHONPATH
}
if ! python3 -c "import pip" 2>/dev/null; then
    echo "python3 has no pip, which the packages of this job are installed with" >&2
    exit 1
fi
eval "install --upgrade --force-reinstall --no-deps $files" || exit
find_packages
eval "install $files" || exit
find_packages
shift "$count"
PATH=$prefix/bin:$prefix/local/bin:$PATH
export PATH
exec python3 -m "$module" "$@"
"""


def command(files: Sequence[str], module: str, args: Sequence[str]) -> tuple[str, ...]:
    """`files` are paths below DIRECTORY. The exit code is the module's, or pip's where one cannot be installed."""
    return ("/bin/sh", "-c", _SCRIPT, "packages", DIRECTORY, str(len(files)), module, *files, *args)
