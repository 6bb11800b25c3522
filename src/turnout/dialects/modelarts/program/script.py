"""The start script: what ModelArts does in the container before the user's program, as the command line of a replica.

All jobs have the same `/bin/sh` script. What differs between jobs is in its arguments, so that nothing needs quoting,
and so that paths can be rewritten where there is no sandbox. At its end the script replaces itself with the program
(`exec`): the program's exit code is the replica's, and signals reach it.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class EngineFamily(StrEnum):
    """The options that an engine passes to its boot file on several nodes."""

    PLAIN = ""
    """No options."""
    PYTORCH = "pytorch"
    """`--init_method --rank --world_size`."""
    TENSORFLOW = "tensorflow"
    """`--job_name --task_index --worker_hosts --ps_hosts`."""
    MPI = "mpi"
    """Also Horovod: `mpirun` on node 0 starts all ranks there, and the other nodes end when it ends."""


class Start(NamedTuple):
    """The arguments of the script. Paths are those of the sandbox.

    `folder` and `packages` must be in the spec's `scratch`. The spec's `working_dir` must exist before the code is
    copied (`/home/ma-user` does, if it is scratch): the script itself changes to the program's working directory.
    """

    code: str = ""
    """The target of the read-only mount of `code_dir`. Empty if there is no code."""
    folder: str = ""
    """The replica's own copy of the code: `/home/ma-user/modelarts/user-job-dir/<last element of code_dir>`."""
    boot_file: str = ""
    """A path below `folder`. Python runs it with the multi-node options and `options`."""
    command: str = ""
    """A shell command that runs instead of a boot file, without any options."""
    working_dir: str = ""
    """Empty: `folder`."""
    packages: str = "/home/ma-user/.turnout/packages"
    """The directory for the packages of `pip-requirements.txt`, and for those that the program installs."""
    options: tuple[str, ...] = ()
    """`--data_url=/home/ma-user/modelarts/inputs/data_url_0`, `--epochs=3`."""
    family: EngineFamily = EngineFamily.PLAIN
    nodes: int = 1
    """The number of replicas of the role."""
    autosearch: str = ""
    """The source of the module `autosearch`, which programs can import, and which runs the boot file."""
    framework: str = ""
    """A directory for `PYTHONPATH`."""
    failure: str = ""
    """If it is not empty, the script prints this message and fails at once."""


def command(start: Start) -> tuple[str, ...]:
    """The argv of each replica of the role."""
    family = start.family if start.nodes > 1 or start.family is EngineFamily.MPI else EngineFamily.PLAIN
    known = (start.code, start.folder, start.boot_file, start.command, start.working_dir, start.packages)
    known += (family.value, str(start.nodes), start.autosearch, start.framework, start.failure)
    return ("/bin/sh", "-c", _SCRIPT, "modelarts", *known, *start.options)


def parse(argv: Sequence[str]) -> Start | None:
    """What `command` made the command line of; None for any other command line."""
    if tuple(argv[:4]) != ("/bin/sh", "-c", _SCRIPT, "modelarts"):
        return None
    code, folder, boot_file, shell_command, working_dir, packages, family, nodes, *rest = argv[4:]
    autosearch, framework, failure, *options = rest
    return Start(
        code,
        folder,
        boot_file,
        shell_command,
        working_dir,
        packages,
        tuple(options),
        EngineFamily(family),
        int(nodes),
        autosearch,
        framework,
        failure,
    )


# Parameters and channels are variables too, under names that the user chose: the script's own begin with `_t_`.
_SCRIPT = r"""
_t_code=$1 _t_folder=$2 _t_boot=$3 _t_command=$4 _t_where=${5:-$2} _t_packages=$6 _t_family=$7 _t_nodes=$8
_t_autosearch=$9 _t_framework=${10} _t_failure=${11}
shift 11

say() { printf '[ModelArts Service Log] %s\n' "$*"; }

fail() {
    _t_status=$1
    shift
    say "error: $*"
    exit "$_t_status"
}

# The members of a role, as TF_CONFIG has them: address:port,address:port
hosts() { printf %s "$TF_CONFIG" | sed -n 's/.*"'"$1"'":\[\([^]]*\)\].*/\1/p' | tr -d '"'; }

# With several roles, ranks are counted within this role.
find_peers() {
    _t_rank=${RANK:-0} _t_size=${WORLD_SIZE:-1} _t_lead=$MASTER_ADDR:$MASTER_PORT
    if [ "$_t_nodes" -lt "$_t_size" ]; then
        _t_rank=$VC_TASK_INDEX _t_size=$_t_nodes _t_lead=$(hosts "$MA_TASK_NAME")
        _t_lead=${_t_lead%%,*}
    fi
}

# Node 0 waits until all others have connected. Then a background process keeps the connections open: it ends with the
# replica, which tells the other nodes to end.
accept_other_nodes() {
    python -c 'import os, signal, socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=4096)
connections = [server.accept()[0] for _ in range(1, int(sys.argv[3]))]
if os.fork() == 0:
    signal.pause()' "${_t_lead%:*}" "${_t_lead##*:}" "$_t_size" || fail 1 "the other nodes do not answer"
}

wait_for_node_0() {
    say "node 0 runs mpirun for all nodes; this node waits until mpirun ends"
    exec python -c 'import socket, sys, time
while True:
    try:
        connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
        break
    except OSError:
        time.sleep(0.2)
connection.recv(1)' "${_t_lead%:*}" "${_t_lead##*:}"
}

copy_code() {
    mkdir -p "$_t_folder" && cp -RP "$_t_code/." "$_t_folder" && chmod -R u+rwX "$_t_folder" ||
        fail 1 "cannot copy the code to $_t_folder"
    say "the code is in $_t_folder"
}

write_autosearch() {
    mkdir -p "$_t_packages" && printf %s "$_t_autosearch" >"$_t_packages/autosearch.py" ||
        fail 1 "cannot write the module autosearch to $_t_packages"
}

install_packages() {
    grep -Eiq '^[[:space:]]*moxing[[:space:]]*($|[<>=!~;#])' "$_t_folder/pip-requirements.txt" &&
        say "warning: pip installs PyPI's package moxing, which has no mox.file: it is not Huawei's." \
            "Remove it from pip-requirements.txt: the program has a module moxing without it"
    say "pip install -r $_t_folder/pip-requirements.txt"
    (cd "$_t_folder" && exec python -m pip install --no-input --disable-pip-version-check \
        -r pip-requirements.txt) ||
        fail $? "cannot install the packages of pip-requirements.txt (exit code $?)"
}

# The program gets the variables that it exports. An exit in it does not end this script.
source_pre_start() {
    _t_saved=$(mktemp) || fail 1 "cannot create a file in ${TMPDIR:-/tmp}"
    say "run $1"
    "$_t_shell" -c 'trap "export -p >&9" EXIT; . "$0"' "$1" 9>"$_t_saved" || fail $? "$1 failed (exit code $?)"
}

run_pre_start() {
    say "run $1"
    python "$1" || fail $? "$1 failed (exit code $?)"
}

# All ranks run on this node, because its GPUs are here.
run_ranks() {
    _t_ranks=$_t_size
    [ "${MA_NUM_GPUS:-0}" -gt 0 ] && _t_ranks=$MA_NUM_GPUS
    [ "$_t_ranks" -gt 1 ] || start "$@"
    command -v mpirun >/dev/null ||
        fail 127 "this engine needs mpirun for $_t_ranks ranks, and mpirun is not installed"
    case $(mpirun --version 2>&1) in
    *"Open MPI"* | *OpenRTE*)
        # The container has no ssh, and Open MPI needs none on one node.
        export OMPI_MCA_plm_rsh_agent=false OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        set -- --oversubscribe "$@"
        ;;
    esac
    start mpirun -np "$_t_ranks" "$@"
}

start() {
    say "start: $*"
    [ -n "$_t_saved" ] && exec "$_t_shell" -c '. "$0"; cd "$1"; shift; exec "$@"' "$_t_saved" "$PWD" "$@"
    exec "$@"
}

[ -n "$_t_failure" ] && fail 1 "$_t_failure"
_t_shell=/bin/sh _t_saved=
[ -x /bin/bash ] && _t_shell=/bin/bash
[ -n "$_t_family" ] && find_peers
if [ "$_t_family" = mpi ] && [ "$_t_size" -gt 1 ]; then
    [ "$_t_rank" -gt 0 ] && wait_for_node_0
    accept_other_nodes
fi
[ -n "$MA_LOG_DIR" ] && mkdir -p "$MA_LOG_DIR" 2>/dev/null
[ -n "$_t_code" ] && copy_code
[ -n "$_t_autosearch" ] && write_autosearch
PYTHONPATH=$_t_packages${_t_framework:+:$_t_framework}${_t_folder:+:${_t_folder%/*}}${PYTHONPATH:+:$PYTHONPATH}
# The last place, so that the user's own modules of the same names go first.
PYTHONPATH=$PYTHONPATH${TURNOUT_MODULES:+:$TURNOUT_MODULES}
PATH=$_t_packages/bin:$PATH
# Packages that the program installs go there too, and replace those that are there.
[ -n "$PIP_TARGET" ] || export PIP_TARGET="$_t_packages" PIP_UPGRADE=1
export PYTHONPATH PATH
if [ -n "$_t_folder" ]; then
    export WORKSPACE="$_t_folder"
    [ "$MA_JOB_DIR" = "$MA_MOUNT_PATH/user-job-dir" ] && export MA_JOB_DIR="${_t_folder%/*}"
fi
if [ -n "$_t_where" ]; then
    cd "$_t_where" || fail 1 "the working directory $_t_where does not exist"
fi
if [ -n "$_t_folder" ]; then
    _t_beside=${_t_boot%/*}
    _t_beside=${_t_beside:-$_t_folder}
    [ -f "$_t_folder/pip-requirements.txt" ] && install_packages
    [ -f "$_t_beside/ma-pre-start.sh" ] && source_pre_start "$_t_beside/ma-pre-start.sh"
    [ -f "$_t_beside/ma-pre-start.py" ] && run_pre_start "$_t_beside/ma-pre-start.py"
fi
[ -n "$_t_command" ] && start "$_t_shell" -c "$_t_command"
case $_t_family in
pytorch) set -- "--init_method=tcp://$_t_lead" "--rank=$_t_rank" "--world_size=$_t_size" "$@" ;;
tensorflow)
    set -- "--job_name=$MA_TASK_NAME" "--task_index=$VC_TASK_INDEX" \
        "--worker_hosts=$(hosts worker)" "--ps_hosts=$(hosts ps)" "$@"
    ;;
esac
[ -n "$_t_autosearch" ] && set -- "$_t_packages/autosearch.py" "$_t_boot" "$@" || set -- "$_t_boot" "$@"
set -- "${MA_SCRIPT_INTERPRETER:-python}" "$@"
[ "$_t_family" = mpi ] && run_ranks "$@"
start "$@"
"""
