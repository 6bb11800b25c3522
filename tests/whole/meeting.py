"""Runs in every replica of a gang and connects to all the others over TCP, using only TF_CONFIG.

The chief asks each replica for its name and prints the replies. Parameter servers run until they are stopped.
"""

import json
import os
import socket
import sys
import time

config = json.loads(os.environ["TF_CONFIG"])
cluster, task = config["cluster"], config["task"]
me = f"{task['type']}:{task['index']}"
host, port = cluster[task["type"]][task["index"]].rsplit(":", 1)
listener = socket.create_server((host, int(port)))


def call(address: str) -> str:
    host, port = address.rsplit(":", 1)
    for _ in range(500):
        try:
            with socket.create_connection((host, int(port)), 10) as peer:
                peer.sendall(me.encode() + b"\n")
                return peer.makefile().readline().strip()
        except OSError:
            time.sleep(0.02)
    sys.exit(f"{me} cannot reach {address}")


if task["type"] == "chief":
    met = sorted(call(address) for kind in cluster if kind != "chief" for address in cluster[kind])
    print("met", " ".join(met), flush=True)
    sys.exit(0)

served = 0
while task["type"] == "ps" or served == 0:
    peer, _ = listener.accept()
    with peer:
        caller = peer.makefile().readline().strip()
        peer.sendall(me.encode() + b"\n")
        print(me, "was called by", caller, flush=True)
        served += 1
