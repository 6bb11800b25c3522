# pyright: reportMissingImports=false
"""The gangs on the cluster: a placement group for each, and an actor for each replica.

Both are detached, so they do not end with the bridge. A new bridge finds them by their names. A gang is over when all
of its actors are; then its placement group is removed, which ends the actors and frees what they had.
"""

from __future__ import annotations

import collections
import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray._private import state
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from . import replica
from .replica import Document

Bundle = dict[str, float]
Documents = list[Document]

NAMES = "turnout-"
NAMESPACE = "turnout"
REMEMBERED = 1000
INCOMPLETE_SECONDS = 600.0
"""A gang that lacks actors for so long was given up while it was submitted."""
PAUSE = 1.0
LIVE = ("PENDING", "PREPARED", "CREATED", "RESCHEDULING")

LAUNCHER = Path(__file__).with_name("launcher.py").read_text().split('"""', 2)[2]
"""Without its docstring, which every reader of a process list would see."""

cloudpickle.register_pickle_by_value(replica)


class Member:
    def __init__(self, name: str, actor: Any) -> None:
        self.name = name
        self.actor = actor
        self.over: Document | None = None
        """How it ended: `code` and `words` of the runner, or `error` and `text` if the actor died first."""


class Gang:
    def __init__(self, name: str, group: Any, members: list[Member]) -> None:
        self.name = name
        self.group = group
        self.members = members

    @property
    def handle(self) -> str:
        return self.group.id.hex()

    @property
    def over(self) -> bool:
        return all(member.over for member in self.members)


class Gangs:
    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called when a replica has ended."""
        self._changed = changed
        self._lock = threading.Lock()
        self._gangs: dict[str, Gang] = {}
        self._ended: collections.OrderedDict[str, Document] = collections.OrderedDict()
        """The last result of `_describe` for each gang that is over."""
        self._nodes: dict[str, str] = {}
        self._actor = ray.remote(replica.Replica)
        # Ray's own thread calls back, and would wait for itself if it called Ray.
        self._results: queue.SimpleQueue[tuple[Gang, Member, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._take_results, daemon=True).start()

    # Requests.

    def submit(self, name: str, strategy: str, bundles: list[Bundle], replicas: list[Document]) -> str:
        """Returns the handle. May be called again: it only does what is missing."""
        group = self._group(name) or self._create(name, strategy, bundles)
        members = [
            Member(one["name"], self._start(name, group, index, bundles[index], one))
            for index, one in enumerate(replicas)
        ]
        self._adopt(Gang(name, group, members))
        return group.id.hex()

    def _group(self, name: str) -> Any:
        try:
            return ray.util.get_placement_group(name)
        except ValueError:
            return None

    def _create(self, name: str, strategy: str, bundles: list[Bundle]) -> Any:
        try:
            return ray.util.placement_group(bundles, strategy=strategy, name=name, lifetime="detached")
        except ray.exceptions.RaySystemError:
            found = self._group(name)  # a request that was given up came to its end after all
            if found is None:
                raise
            return found

    def _start(self, name: str, group: Any, index: int, bundle: Bundle, one: Document) -> Any:
        custom = {key: value for key, value in bundle.items() if key not in ("CPU", "GPU", "memory")}
        call = {**one["call"], "launcher": LAUNCHER}
        call["environment"] = {**call["environment"], "TURNOUT_ENGINE_ID": group.id.hex()}
        return self._actor.options(
            name=f"{name}/{one['name']}",
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=0,
            max_task_retries=0,
            num_cpus=bundle.get("CPU", 0),
            num_gpus=bundle.get("GPU", 0),
            memory=bundle.get("memory"),
            resources=custom,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, index),
        ).remote(call)

    def cancel(self, handle: str) -> None:
        with self._lock:
            gang = self._gangs.get(handle)
        group = gang.group if gang else self._group(self._row(handle).get("name", ""))
        if group is not None and group.id.hex() == handle:
            ray.util.remove_placement_group(group)

    def all(self) -> Documents:
        """Every gang that is not over, and those that ended last."""
        with self._lock:
            gangs, ended = list(self._gangs.values()), list(self._ended.values())
        return ended + [self._describe(gang) for gang in gangs]

    def look(self, handle: str) -> Document | None:
        """The gang; None if Ray does not know it."""
        with self._lock:
            if handle in self._ended:
                return self._ended[handle]
            gang = self._gangs.get(handle)
        if gang:
            return self._describe(gang)
        row = self._row(handle)
        if not row:
            return None
        return {
            "handle": handle,
            "name": row["name"],
            "state": row["state"],
            "bundles": list(row["bundles"].values()),
            "strategy": row["strategy"],
            "members": [],
        }

    def nodes(self) -> Documents:
        """The nodes that are alive, with their resources and those of them that nobody has."""
        free = state.available_resources_per_node()
        return [
            {
                "address": node["NodeManagerAddress"],
                "resources": node["Resources"],
                "free": free.get(node["NodeID"], {}),
            }
            for node in ray.nodes()
            if node["Alive"]
        ]

    def available(self) -> Bundle:
        return ray.available_resources()

    def check(self, url: str, resources: Bundle, seconds: float) -> Document | None:
        """Runs a task of one line on a node."""
        options = {"num_cpus": resources.pop("CPU", 0), "resources": resources, "max_retries": 0}
        asked = ray.remote(replica.reach).options(**options).remote(url)
        try:
            return ray.get(asked, timeout=seconds)
        except ray.exceptions.GetTimeoutError:
            ray.cancel(asked, force=True)
            return None

    # Gangs of earlier bridges.

    def attach(self) -> None:
        """Takes over the gangs that an earlier bridge submitted. One that lacks actors waits for its next submit."""
        found: dict[str, dict[str, Document]] = collections.defaultdict(dict)
        for actor in state.actors().values():
            name, _, member = actor["Name"].partition("/")
            if name.startswith(NAMES) and (actor["State"] != "DEAD" or member not in found[name]):
                found[name][member] = actor
        for row in ray.util.placement_group_table().values():
            if not row["name"].startswith(NAMES) or row["state"] not in LIVE:
                continue
            group = self._group(row["name"])
            try:
                if group is not None:
                    self._attach(group, row, found[row["name"]])
            except Exception as error:  # noqa: BLE001 (somebody else's actors must not stop the bridge)
                sys.stderr.write(f"{row['name']} cannot be taken over: {error}\n")

    def _attach(self, group: Any, row: Document, actors: dict[str, Document]) -> None:
        if len(actors) < len(row["bundles"]):
            threading.Thread(target=self._remove_incomplete, args=(group,), daemon=True).start()
            return
        members: list[Member] = []
        for name, actor in actors.items():
            handle = None
            if actor["State"] != "DEAD":
                with contextlib.suppress(ValueError):
                    handle = ray.get_actor(f"{row['name']}/{name}", namespace=NAMESPACE)
            member = Member(name, handle)
            if handle is None:
                member.over = {"error": "ActorDiedError", "text": str(actor["DeathCause"])}
            members.append(member)
        self._adopt(Gang(row["name"], group, members))

    def _remove_incomplete(self, group: Any) -> None:
        time.sleep(INCOMPLETE_SECONDS)
        with self._lock:
            known = group.id.hex() in self._gangs or group.id.hex() in self._ended
        if not known:
            ray.util.remove_placement_group(group)

    # The ends of replicas.

    def _adopt(self, gang: Gang) -> None:
        """Tells every actor to run, even if it runs already: its reply is the end of the replica."""
        with self._lock:
            if gang.handle in self._gangs or gang.handle in self._ended:
                return
            self._gangs[gang.handle] = gang
        for member in gang.members:
            if member.actor is not None:
                self._run(gang, member)
        self._settle(gang)

    def _run(self, gang: Gang, member: Member) -> None:
        future = member.actor.run.remote().future()
        future.add_done_callback(lambda done: self._results.put((gang, member, done)))

    def _take_results(self) -> None:
        while True:
            gang, member, done = self._results.get()
            try:
                self._member_ended(gang, member, done)
            except Exception as error:  # noqa: BLE001 (the ends of all other gangs depend on this thread)
                sys.stderr.write(f"the end of {gang.name}/{member.name}: {error}\n")

    def _member_ended(self, gang: Gang, member: Member, done: Any) -> None:
        error = done.exception()
        if isinstance(error, ray.exceptions.ActorUnavailableError):
            # It may come back, or Ray learns that it is dead.
            timer = threading.Timer(PAUSE, self._run, (gang, member))
            timer.daemon = True
            timer.start()
            return
        if error is None:
            code, words = done.result()
            member.over = {"code": code, "words": words}
        else:
            member.over = {"error": type(error).__name__, "text": str(error)}
        self._settle(gang)
        self._changed()

    def _settle(self, gang: Gang) -> None:
        """Removes the placement group of a gang that is over."""
        with self._lock:
            if not gang.over or gang.handle not in self._gangs:
                return
            del self._gangs[gang.handle]
            self._ended[gang.handle] = self._shown(gang, "REMOVED", {})
            while len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)
        ray.util.remove_placement_group(gang.group)

    # What the service is shown.

    def _describe(self, gang: Gang) -> Document:
        row = ray.util.placement_group_table(gang.group)
        return self._shown(gang, row.get("state", "REMOVED"), row)

    def _shown(self, gang: Gang, shown_state: str, row: Document) -> Document:
        nodes = row.get("bundles_to_node_id", {}).values()
        return {
            "handle": gang.handle,
            "name": gang.name,
            "state": shown_state,
            "bundles": list(row.get("bundles", {}).values()),
            "strategy": row.get("strategy", ""),
            "nodes": sorted({self._address(node) for node in nodes if node}),
            "members": [{"name": member.name, "over": member.over} for member in gang.members],
        }

    def _address(self, node: str) -> str:
        if node not in self._nodes:
            self._nodes = {one["NodeID"]: one["NodeManagerAddress"] for one in ray.nodes()}
        return self._nodes.get(node, node)

    def _row(self, handle: str) -> Document:
        return ray.util.placement_group_table().get(handle, {})
