"""What ModelArts does in the container before and around the user's program, as the command line of a replica.

It is one script for `/bin/sh`, the same for every job: all that differs comes as an argument of its own, so that
nothing has to be quoted, and a path can be rewritten where there is no sandbox. The program takes the script's place at
the end (`exec`): its exit code is the replica's, and signals reach it.
"""

from enum import StrEnum
from typing import NamedTuple


class Family(StrEnum):
    """What an engine gives its boot file when there are several nodes."""

    PLAIN = ""
    """Nothing."""
    PYTORCH = "pytorch"
    """`--init_method --rank --world_size`."""
    TENSORFLOW = "tensorflow"
    """`--job_name --task_index --worker_hosts --ps_hosts`."""
    MPI = "mpi"
    """Horovod too: `mpirun` on node 0 starts all ranks there, and the other nodes end when that has."""


class Start(NamedTuple):
    """All that the script follows from. Paths are those of the sandbox.

    `folder` and `packages` must lie within the spec's `scratch`, and the spec's `working_dir` must be there before the
    code is (`/home/ma-user` is, if it is scratch): the script goes to the right one by itself.
    """

    code: str = ""
    """The target of the read-only mount of `code_dir`; empty: there is no code."""
    folder: str = ""
    """Where the replica gets its own copy of it: `/home/ma-user/modelarts/user-job-dir/<last element of code_dir>`."""
    boot_file: str = ""
    """Below `folder`, run by Python with the multi-node options and `options`."""
    command: str = ""
    """Instead of a boot file: text for a shell. Nothing is appended to it."""
    working_dir: str = ""
    """Empty: `folder`."""
    packages: str = "/home/ma-user/.turnout/packages"
    """Where `pip-requirements.txt` is installed, and what the program installs by itself."""
    options: tuple[str, ...] = ()
    """`--data_url=/home/ma-user/modelarts/inputs/data_url_0`, `--epochs=3`."""
    family: Family = Family.PLAIN
    nodes: int = 1
    """How many replicas the role has."""
    autosearch: str = ""
    """The text of a module of that name, which is there to be imported, and runs the boot file."""
    framework: str = ""
    """A directory that Python looks for modules in."""


def command(start: Start) -> tuple[str, ...]:
    """The argv for each replica of the role."""
    family = start.family if start.nodes > 1 or start.family is Family.MPI else Family.PLAIN
    known = (start.code, start.folder, start.boot_file, start.command, start.working_dir, start.packages)
    known += (family.value, str(start.nodes), start.autosearch, start.framework)
    return ("/bin/sh", "-c", _SCRIPT, "modelarts", *known, *start.options)


_SCRIPT = r"""
code=$1 folder=$2 boot=$3 command=$4 where=${5:-$2} packages=$6 family=$7 nodes=$8
autosearch=$9 framework=${10}
shift 10

say() { printf '[ModelArts Service Log] %s\n' "$*"; }

fail() {
    status=$1
    shift
    say "error: $*"
    exit "$status"
}

# The members of a role, as TF_CONFIG has them: address:port,address:port
hosts() { printf %s "$TF_CONFIG" | sed -n 's/.*"'"$1"'":\[\([^]]*\)\].*/\1/p' | tr -d '"'; }

# Among several roles, the nodes of this one count for themselves.
find_peers() {
    rank=${RANK:-0} size=${WORLD_SIZE:-1} lead=$MASTER_ADDR:$MASTER_PORT
    if [ "$nodes" -lt "$size" ]; then
        rank=$VC_TASK_INDEX size=$nodes lead=$(hosts "$MA_TASK_NAME")
        lead=${lead%%,*}
    fi
}

# Node 0 waits until all others have come, and then leaves a process that holds a connection to each for as long as it
# lives itself: what it leaves is ended with it.
gather_others() {
    python -c 'import os, signal, socket, sys
here = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=4096)
there = [here.accept()[0] for _ in range(1, int(sys.argv[3]))]
if os.fork() == 0:
    signal.pause()' "${lead%:*}" "${lead##*:}" "$size" || fail 1 "the other nodes cannot be reached"
}

wait_for_node_0() {
    say "node 0 runs mpirun for all nodes; this one waits until that has ended"
    exec python -c 'import socket, sys, time
while True:
    try:
        there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
        break
    except OSError:
        time.sleep(0.2)
there.recv(1)' "${lead%:*}" "${lead##*:}"
}

get_code() {
    mkdir -p "$folder" && cp -RP "$code/." "$folder" && chmod -R u+rwX "$folder" ||
        fail 1 "the code cannot be copied to $folder"
    say "the code is in $folder"
}

give_autosearch() {
    mkdir -p "$packages" && printf %s "$autosearch" >"$packages/autosearch.py" ||
        fail 1 "the module autosearch cannot be written to $packages"
}

install_packages() {
    say "pip install -r $folder/pip-requirements.txt"
    (cd "$folder" && exec python -m pip install --no-input --disable-pip-version-check \
        -r pip-requirements.txt) ||
        fail $? "the packages of pip-requirements.txt could not be installed (exit code $?)"
}

# What it exports the program finds too, and an exit in it ends only itself.
source_pre_start() {
    saved=$(mktemp) || fail 1 "no file can be made in ${TMPDIR:-/tmp}"
    say "run $1"
    "$shell" -c 'trap "export -p >&9" EXIT; . "$0"' "$1" 9>"$saved" || fail $? "$1 failed (exit code $?)"
}

run_pre_start() {
    say "run $1"
    python "$1" || fail $? "$1 failed (exit code $?)"
}

# Ranks can only be where their GPUs are: on this node.
run_ranks() {
    ranks=$size
    [ "${MA_NUM_GPUS:-0}" -gt 0 ] && ranks=$MA_NUM_GPUS
    [ "$ranks" -gt 1 ] || start "$@"
    command -v mpirun >/dev/null ||
        fail 127 "this engine needs mpirun for $ranks ranks, which is not installed here"
    case $(mpirun --version 2>&1) in
    *"Open MPI"* | *OpenRTE*)
        # There is no ssh in here, and none is needed.
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

shell=/bin/sh saved=
[ -x /bin/bash ] && shell=/bin/bash
[ -n "$family" ] && find_peers
if [ "$family" = mpi ] && [ "$size" -gt 1 ]; then
    [ "$rank" -gt 0 ] && wait_for_node_0
    gather_others
fi
[ -n "$MA_LOG_DIR" ] && mkdir -p "$MA_LOG_DIR" 2>/dev/null
[ -n "$code" ] && get_code
[ -n "$autosearch" ] && give_autosearch
PYTHONPATH=$packages${framework:+:$framework}${folder:+:${folder%/*}}${PYTHONPATH:+:$PYTHONPATH}
PATH=$packages/bin:$PATH
# What the program installs itself goes there too, and takes the place of what is there.
[ -n "$PIP_TARGET" ] || export PIP_TARGET="$packages" PIP_UPGRADE=1
export PYTHONPATH PATH
if [ -n "$folder" ]; then
    export WORKSPACE="$folder"
    [ "$MA_JOB_DIR" = "$MA_MOUNT_PATH/user-job-dir" ] && export MA_JOB_DIR="${folder%/*}"
fi
if [ -n "$where" ]; then
    cd "$where" || fail 1 "there is no directory $where to run in"
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
