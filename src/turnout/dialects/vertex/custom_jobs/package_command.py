"""The command line that installs a job's Python packages and runs its module, as Google's own images do."""

from collections.abc import Sequence
from typing import NamedTuple

DIRECTORY = "/opt/packages"
"""Contains one directory for each package."""

# Uses a prefix instead of --target, which would install again what the interpreter already has. The directory below the
# prefix depends on the distribution. A build without isolation needs no network; if it fails, pip isolates the build.
# Each package is built and installed once, even if the interpreter has it. If it requires others, pip runs again with
# its name: with its file, pip would build it a second time. A replica that starts again has the same home, and installs
# nothing unless a file has changed. The script's own variables begin with `_t_`: the user chose the others.
_SCRIPT = r"""
_t_directory=$TURNOUT_ROOT$1 _t_count=$2 _t_module=$3
shift 3
_t_prefix=${HOME:-/tmp}/.packages
_t_log=${TMPDIR:-/tmp}/.pip.log
_t_files= _t_sources=
_t_number=1
while [ "$_t_number" -le "$_t_count" ]; do
    eval "_t_file=\${$_t_number}"
    case $_t_file in *.whl) ;; *) _t_sources=yes ;; esac
    _t_files="$_t_files \"\$_t_directory/\${$_t_number}\""
    _t_number=$((_t_number + 1))
done
pip_install() {
    python3 -m pip --disable-pip-version-check --no-input install --prefix "$_t_prefix" --no-warn-script-location "$@"
}
install() {
    if [ -z "$_t_sources" ]; then pip_install "$@"; return; fi
    if pip_install --no-build-isolation "$@" >"$_t_log" 2>&1; then cat "$_t_log"; return; fi
    pip_install "$@" || { cat "$_t_log" >&2; return 1; }
}
find_packages() {
    _t_requiring=
    for _t_place in "$_t_prefix"/lib/python3*/site-packages "$_t_prefix"/local/lib/python3*/dist-packages \
        "$_t_prefix"/lib/python3*/dist-packages "$_t_prefix"/lib64/python3*/site-packages; do
        [ -d "$_t_place" ] || continue
        case ":${PYTHONPATH:-}:" in *":$_t_place:"*) ;; *) PYTHONPATH=$_t_place${PYTHONPATH:+:$PYTHONPATH} ;; esac
        for _t_info in "$_t_place"/*-info; do
            grep -qs "^Requires-Dist:" "$_t_info/METADATA" || [ -s "$_t_info/requires.txt" ] || continue
            _t_name=${_t_info##*/} _t_name=${_t_name%.*-info} _t_name=${_t_name%-py3*}
            _t_requiring="$_t_requiring ${_t_name%-*}==${_t_name##*-}"
        done
    done
    export PYTHONPATH
}
if ! _t_version=$(python3 -c "import pip, sys; print(sys.version)" 2>/dev/null); then
    echo "cannot install the packages of this job: python3 has no pip" >&2
    exit 1
fi
eval "_t_sums=\$(sha256sum $_t_files 2>/dev/null)"
if [ -z "$_t_sums" ] || [ "$_t_version $_t_sums" != "$(cat "$_t_prefix/installed" 2>/dev/null)" ]; then
    rm -rf "$_t_prefix"
    eval "install --ignore-installed --no-deps $_t_files" || exit
    find_packages
    if [ -n "$_t_requiring" ]; then install $_t_requiring || exit; fi
    echo "$_t_version $_t_sums" >"$_t_prefix/installed"
fi
find_packages
shift "$_t_count"
PATH=$_t_prefix/bin:$_t_prefix/local/bin:$PATH
export PATH
exec python3 -m "$_t_module" "$@"
"""


def command(files: Sequence[str], module: str, args: Sequence[str]) -> tuple[str, ...]:
    """`files` are paths below DIRECTORY. The exit code is the module's, or pip's if a package cannot be installed."""
    return ("/bin/sh", "-c", _SCRIPT, "packages", DIRECTORY, str(len(files)), module, *files, *args)


class Packages(NamedTuple):
    files: tuple[str, ...]
    """Paths below DIRECTORY."""
    module: str
    args: tuple[str, ...]


def parse(argv: Sequence[str]) -> Packages | None:
    """What `command` made the command line of; None for any other command line."""
    head = ("/bin/sh", "-c", _SCRIPT, "packages", DIRECTORY)
    if tuple(argv[: len(head)]) != head:
        return None
    count, module, *words = argv[len(head) :]
    return Packages(tuple(words[: int(count)]), module, tuple(words[int(count) :]))
