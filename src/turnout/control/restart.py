"""A replica that starts again where it was, while the rest of its gang goes on."""

from turnout.control.board import Board
from turnout.control.live import Live
from turnout.control.retry import Again
from turnout.control.turn import StartAgain
from turnout.job import EventKind, Replica, ReplicaState


def start_again(board: Board, live: Live, replica: Replica, again: Again, at: int) -> None:
    """Of one that has just ended. Its row tells of the next start from now on, an event of this end."""
    told = f"{replica.name} {replica.message}; it starts again in its place ({again})"
    board.event(live.job, EventKind.RESTARTED, told, at)
    replica.restarts += 1
    replica.state = ReplicaState.WAITING
    replica.pid = replica.ended = replica.exit_code = replica.signal = None
    replica.message = ""
    board.move(replica)
    board.turn.instructions.append(again_instruction(live, replica))


def again_instruction(live: Live, replica: Replica) -> StartAgain:
    return StartAgain(live.engine, live.launch(), replica.name, replica.restarts)
