"""The start script: what ModelArts does in the container before the user's program, as the command line of a replica.

All jobs have the same `/bin/sh` script. What differs between jobs is in its arguments, so that nothing needs quoting,
and so that paths can be rewritten where there is no sandbox. At its end the script replaces itself with the program
(`exec`): the program's exit code is the replica's, and signals reach it.
"""

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


_SCRIPT = r"""
code=$1 folder=$2 boot=$3 command=$4 where=${5:-$2} packages=$6 family=$7 nodes=$8
autosearch=$9 framework=${10} failure=${11}
shift 11

say() { printf '[ModelArts Service Log] %s\n' "$*"; }

fail() {
    status=$1
    shift
    say "error: $*"
    exit "$status"
}

# The members of a role, as TF_CONFIG has them: address:port,address:port
hosts() { printf %s "$TF_CONFIG" | sed -n 's/.*"'"$1"'":\[\([^]]*\)\].*/\1/p' | tr -d '"'; }

# With several roles, ranks are counted within this role.
find_peers() {
    rank=${RANK:-0} size=${WORLD_SIZE:-1} lead=$MASTER_ADDR:$MASTER_PORT
    if [ "$nodes" -lt "$size" ]; then
        rank=$VC_TASK_INDEX size=$nodes lead=$(hosts "$MA_TASK_NAME")
        lead=${lead%%,*}
    fi
}

# Node 0 waits until all others have connected. Then a background process keeps the connections open: it ends with the
# replica, which tells the other nodes to end.
accept_other_nodes() {
    python -c 'import os, signal, socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=4096)
connections = [server.accept()[0] for _ in range(1, int(sys.argv[3]))]
if os.fork() == 0:
    signal.pause()' "${lead%:*}" "${lead##*:}" "$size" || fail 1 "the other nodes do not answer"
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
connection.recv(1)' "${lead%:*}" "${lead##*:}"
}

copy_code() {
    mkdir -p "$folder" && cp -RP "$code/." "$folder" && chmod -R u+rwX "$folder" ||
        fail 1 "cannot copy the code to $folder"
    say "the code is in $folder"
}

write_autosearch() {
    mkdir -p "$packages" && printf %s "$autosearch" >"$packages/autosearch.py" ||
        fail 1 "cannot write the module autosearch to $packages"
}

install_packages() {
    say "pip install -r $folder/pip-requirements.txt"
    (cd "$folder" && exec python -m pip install --no-input --disable-pip-version-check \
        -r pip-requirements.txt) ||
        fail $? "cannot install the packages of pip-requirements.txt (exit code $?)"
}

# The program gets the variables that it exports. An exit in it does not end this script.
source_pre_start() {
    saved=$(mktemp) || fail 1 "cannot create a file in ${TMPDIR:-/tmp}"
    say "run $1"
    "$shell" -c 'trap "export -p >&9" EXIT; . "$0"' "$1" 9>"$saved" || fail $? "$1 failed (exit code $?)"
}

run_pre_start() {
    say "run $1"
    python "$1" || fail $? "$1 failed (exit code $?)"
}

# All ranks run on this node, because its GPUs are here.
run_ranks() {
    ranks=$size
    [ "${MA_NUM_GPUS:-0}" -gt 0 ] && ranks=$MA_NUM_GPUS
    [ "$ranks" -gt 1 ] || start "$@"
    command -v mpirun >/dev/null ||
        fail 127 "this engine needs mpirun for $ranks ranks, and mpirun is not installed"
    case $(mpirun --version 2>&1) in
    *"Open MPI"* | *OpenRTE*)
        # The container has no ssh, and Open MPI needs none on one node.
        export OMPI_MCA_plm_rsh_agent=false OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        set -- --oversubscribe "$@"
        ;;
    esac
    start mpirun -np "$ranks" "$@"
}

start() {
    say "start: $*"
    [ -n "$saved" ] && exec "$shell" -c '. "$0"; cd "$1"; shift; exec "$@"' "$saved" "$PWD" "$@"
    exec "$@"
}

[ -n "$failure" ] && fail 1 "$failure"
shell=/bin/sh saved=
[ -x /bin/bash ] && shell=/bin/bash
[ -n "$family" ] && find_peers
if [ "$family" = mpi ] && [ "$size" -gt 1 ]; then
    [ "$rank" -gt 0 ] && wait_for_node_0
    accept_other_nodes
fi
[ -n "$MA_LOG_DIR" ] && mkdir -p "$MA_LOG_DIR" 2>/dev/null
[ -n "$code" ] && copy_code
[ -n "$autosearch" ] && write_autosearch
PYTHONPATH=$packages${framework:+:$framework}${folder:+:${folder%/*}}${PYTHONPATH:+:$PYTHONPATH}
PATH=$packages/bin:$PATH
# Packages that the program installs go there too, and replace those that are there.
[ -n "$PIP_TARGET" ] || export PIP_TARGET="$packages" PIP_UPGRADE=1
export PYTHONPATH PATH
if [ -n "$folder" ]; then
    export WORKSPACE="$folder"
    [ "$MA_JOB_DIR" = "$MA_MOUNT_PATH/user-job-dir" ] && export MA_JOB_DIR="${folder%/*}"
fi
if [ -n "$where" ]; then
    cd "$where" || fail 1 "the working directory $where does not exist"
fi
if [ -n "$folder" ]; then
    beside=${boot%/*}
    beside=${beside:-$folder}
    [ -f "$folder/pip-requirements.txt" ] && install_packages
    [ -f "$beside/ma-pre-start.sh" ] && source_pre_start "$beside/ma-pre-start.sh"
    [ -f "$beside/ma-pre-start.py" ] && run_pre_start "$beside/ma-pre-start.py"
fi
[ -n "$command" ] && start "$shell" -c "$command"
case $family in
pytorch) set -- "--init_method=tcp://$lead" "--rank=$rank" "--world_size=$size" "$@" ;;
tensorflow)
    set -- "--job_name=$MA_TASK_NAME" "--task_index=$VC_TASK_INDEX" \
        "--worker_hosts=$(hosts worker)" "--ps_hosts=$(hosts ps)" "$@"
    ;;
esac
[ -n "$autosearch" ] && set -- "$packages/autosearch.py" "$boot" "$@" || set -- "$boot" "$@"
set -- "${MA_SCRIPT_INTERPRETER:-python}" "$@"
[ "$family" = mpi ] && run_ranks "$@"
start "$@"
"""
