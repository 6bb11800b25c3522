"""The batch script of a gang and the options of its sbatch. Pure: everything here is text.

The script reaches sbatch on standard input, so the token is in no command line. It starts a step for each role and ends
when all of them have ended, with the exit code of the lead's step.
"""

import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from turnout.engines.remote import Gang, RunnerCall
from turnout.engines.slurm.layout import Layout, Need
from turnout.engines.slurm.settings import SlurmSettings
from turnout.job import Spec

SIGNAL_SECONDS = 60
"""So long before the time limit, Slurm sends TERM."""
_START_SECONDS = 300
"""Time for the runners to start and to find each other."""
_STAGING_SECONDS = 1800
"""Time to fetch inputs and to save outputs, if there are any."""
LONGEST_COMMENT = 900
"""Slurm's own limit is 1024 characters."""
COMMENT = "turnout:"
OUT_OF_MEMORY = "out of memory"


def sbatch(gang: Gang, settings: SlurmSettings, layout: Layout, longest: float | None) -> list[str]:
    """The command. `longest`: the partition's limit in minutes, if it is known."""
    slot = layout.slot
    command = [
        "sbatch", "--parsable", f"--job-name={gang.name}", "--no-requeue", "--export=ALL", "--chdir=/",
        "--output=/dev/null", "--error=/dev/null", f"--signal=B:TERM@{SIGNAL_SECONDS}",
        f"--time={minutes(gang.launch.spec, settings.time, longest)}",
        f"--ntasks={layout.slots}", *_resources(slot),
    ]  # fmt: skip
    return [*command, *placement_options(settings)]


def placement_options(settings: SlurmSettings) -> list[str]:
    named = ("partition", "account", "qos", "constraint")
    chosen = [f"--{name}={getattr(settings, name)}" for name in named if getattr(settings, name)]
    return [*chosen, *settings.options]


def minutes(spec: Spec, default: float, longest: float | None) -> int:
    """The job's own limit with time for everything around it, or the default; at most what the partition allows.

    The runner enforces the job's own limit. If even that is more than the partition allows, Slurm has to say so.
    """
    limit = spec.policy.time_limit
    if limit is None:
        return _whole_minutes(60 * (min(default, longest) if longest else default))
    around = _START_SECONDS + spec.policy.grace + spec.policy.finish_seconds + SIGNAL_SECONDS
    if spec.mounts or spec.logs:
        around += _STAGING_SECONDS
    wanted = _whole_minutes(limit + around)
    if longest is None or wanted <= longest:
        return wanted
    return max(_whole_minutes(limit), int(longest))


def script(gang: Gang, settings: SlurmSettings, layout: Layout, words: str, archive: str) -> str:
    """`words`: the beginning of the paths for what the runners print; empty: nodes share no directory with us."""
    roles = gang.launch.spec.roles
    lead = next(number for number, role in enumerate(roles, 1) if role.leads)
    return "\n".join(
        [
            "#!/bin/sh",
            *_exports(gang.runner),
            f"start={shlex.quote(start_program())}",
            f"words={shlex.quote(words)}",
            f"lead={lead} steps={len(roles)} replicas={sum(role.replicas for role in roles)}",
            _PREPARE,
            *(_step(gang, settings, layout, number, archive) for number in range(len(roles))),
            _FINISH,
        ]
    )


@cache
def start_program() -> str:
    """The text of `start.py` without its docstring, which every reader of a process list would see."""
    text = Path(__file__).with_name("start.py").read_text()
    return text.split('"""', 2)[2].strip() + "\n"


def _exports(runner: RunnerCall) -> Iterable[str]:
    yield f"export TURNOUT_TOKEN={shlex.quote(runner.token)}"
    if runner.fingerprint:
        yield f"export TURNOUT_FINGERPRINT={shlex.quote(runner.fingerprint)}"
    yield f"export TURNOUT_PATIENCE={runner.patience:g}"


def _step(gang: Gang, settings: SlurmSettings, layout: Layout, number: int, archive: str) -> str:
    role, need, seats = gang.launch.spec.roles[number], layout.needs[number], layout.seats[number]
    options = [f"--ntasks={role.replicas}", *_resources(need, step=True)]
    places = "" if len(layout.seats) == 1 else " ".join(str(seat + 1) for seat in seats)
    runner = gang.runner
    address = f"{runner.cluster}/{gang.launch.attempt}"
    arguments = [runner.endpoint, address, role.name, runner.digest, archive]
    call = [role.name, places, *options, settings.python, "-S", "-c"]  # nobody needs what site adds
    return f'step {shlex.join(call)} "$start" {shlex.join(arguments)}'


def _resources(need: Need, step: bool = False) -> list[str]:
    options = [f"--cpus-per-task={need.cpus}"]
    if need.memory:
        options.append(f"--mem-per-cpu={need.memory_per_cpu}M")
    elif step:
        # Without it, the first step takes all memory of the job. With it, the steps share it.
        options.append("--mem=0")
    if need.gpus:
        options.append(f"--gpus-per-task={need.gpus}")
    elif step:
        options.append("--gres=none")
    return options


def _whole_minutes(seconds: float) -> int:
    return max(1, -int(-seconds // 60))


# The variables of the job are kept for the programs, under a name that srun does not know. All others go: each one that
# srun finds is an option of it.
_PREPARE = r"""
umask 077
TURNOUT_SLURM_JOB='' newline='
'
work=$(mktemp -d "${TMPDIR:-/tmp}/turnout-XXXXXX") || exit 1
# A shared directory that is full must not keep anything from running, so it only gets copies.
kept=${words:+$words$SLURM_JOB_ID-} words="$work/words-"
if [ -n "$kept" ] && (: >>"${kept}batch") 2>/dev/null; then exec >>"${kept}batch" 2>&1; fi

nodes=$SLURM_JOB_NODELIST tasks=$SLURM_TASKS_PER_NODE
slurm=$(env | sed -n '/^SLURM_[A-Za-z0-9_]*=/p')
while IFS= read -r line; do
    case $line in
        SLURM_JOB_GPUS=*) ;;
        SLURM_JOB_*=* | SLURM_JOBID=* | SLURM_CLUSTER_NAME=*) TURNOUT_SLURM_JOB="$TURNOUT_SLURM_JOB$line$newline" ;;
    esac
    case $line in
        SLURM_JOB_ID=* | SLURM_CONF=* | SLURM_JWT=* | SLURM_NODE_ALIASES=* | SLURM_TMPDIR=*) ;;
        *=*) unset "${line%%=*}" ;;
    esac
done <<END
$slurm
END
export TURNOUT_SLURM_JOB

# The node of each slot: `2(x3),1` in $tasks are three nodes with two slots and one with one.
slots() {
    set -- $(scontrol show hostnames "$nodes")
    for item in $(echo "$tasks" | tr , ' '); do
        times=1
        case $item in *x*) times=${item#*x} times=${times%)} ;; esac
        while [ "$times" -gt 0 ]; do
            count=${item%%(*}
            while [ "$count" -gt 0 ]; do echo "$1"; count=$((count - 1)); done
            shift
            times=$((times - 1))
        done
    done
}
[ $steps -eq 1 ] || slots >"$work/slots"

# srun itself would kill the tasks at once if it got TERM.
trap 'scancel --signal=TERM "$SLURM_JOB_ID" >/dev/null 2>&1' TERM

# What srun says of a runner that ends while others of the gang go on becomes the comment, which squeue shows.
follow() {
    while IFS= read -r line || [ -n "$line" ]; do
        printf '%s\n' "$line" >>"$words$1"
        case $line in
            "srun: error: "*": task"*": "*)
                echo "$1: $line |" >>"$work/gone"
                [ "$(wc -l <"$work/gone")" -gt $most_told ] || tell "$(tr '\n' ' ' <"$work/gone")"
                ;;
        esac
    done
}
tell() {
    text=$(printf '%s' "$1" | head -c @LONGEST@)
    timeout 20 scontrol update "job=$SLURM_JOB_ID" "comment=@COMMENT@ $text" >/dev/null 2>&1
}

most_told=15
not_started='^srun: (fatal|error: (Unable to c|Failure getting|Task launch|Application launch))'
pids= roles= number=0
# role, its slots or nothing, options of srun and the command
step() {
    role=$1 seats=$2 number=$((number + 1)) hosts=
    shift 2
    if [ -n "$seats" ]; then
        hosts="$work/$number.hosts"
        printf '%s\n' $seats | awk 'NR == FNR { node[NR] = $1; next } { print node[$1] }' "$work/slots" - >"$hosts"
        # With fewer slots than it asked for, the step has to find its place by itself.
        ! grep -q '^$' "$hosts" && set -- --distribution=arbitrary "$@" || hosts=
    fi
    (
        trap '' TERM
        if [ -n "$hosts" ]; then export SLURM_HOSTFILE="$hosts"; fi
        set -- srun --exact --immediate=60 --kill-on-bad-exit=0 --wait=0 --mpi=none --input=none --label \
            --export=ALL "$@"
        if [ $replicas -gt 1 ]; then
            { "$@" 2>&1; echo $? >"$work/$number.code"; } | follow "$role"
            code=$(cat "$work/$number.code")
        else
            "$@" >"$words$role" 2>&1
            code=$?
        fi
        [ $steps -gt 1 ] || exit $code
        touch "$work/ended-$role"
        # The other runners would wait for those of this role. A step that is not there yet gets no signal.
        if grep -qE "$not_started" "$words$role"; then
            while [ "$(ls "$work" | grep -c '^ended-')" -lt "$steps" ]; do
                scancel --signal=TERM "$SLURM_JOB_ID"
                sleep 3
            done
        fi
        exit $code
    ) &
    pids="$pids $!" roles="$roles $role"
}
""".replace("@LONGEST@", str(LONGEST_COMMENT)).replace("@COMMENT@", COMMENT)

_FINISH = r"""
code=0 failed= number=0
for pid in $pids; do
    number=$((number + 1))
    # A signal interrupts `wait`.
    while wait "$pid"; ended=$?; kill -0 "$pid" 2>/dev/null; do :; done
    [ $ended -eq 0 ] || failed=yes
    [ $number -ne $lead ] || code=$ended
done

if [ -n "$failed" ]; then
    say() {
        for role in $roles; do
            ! grep -qE 'Out Of Memory|oom.kill' "$words$role" || echo "@OUT_OF_MEMORY@: $role"
        done
        for role in $roles; do
            tail -n 20 "$words$role" | sed -e "s/^ *0*\([0-9][0-9]*\): /$role-\1: /" -e t -e "s/^/$role: /"
        done
    }
    tell "$(say | tr -c '[:print:]\n' '?' | sed 's/$/ |/' | tr '\n' ' ')"
fi
for role in ${kept:+$roles}; do
    [ ! -s "$words$role" ] || cp "$words$role" "$kept$role" 2>/dev/null
done
[ -z "$kept" ] || [ -s "${kept}batch" ] || rm -f "${kept}batch"
rm -rf "$work"
exit $code
""".replace("@OUT_OF_MEMORY@", OUT_OF_MEMORY)
