"""A program of a gang: finds its peers by TF_CONFIG alone and greets each of them over TCP."""

import json
import os
import socket
import threading
import time

config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
me = config["cluster"][task["type"]][task["index"]]
all_addresses = [where for addresses in config["cluster"].values() for where in addresses]
others = [where for where in all_addresses if where != me]
host, port = me.split(":")
listener = socket.create_server((host, int(port)))
greetings: list[str] = []


def listen() -> None:
    while len(greetings) < len(others):
        connection, _ = listener.accept()
        with connection:
            greetings.append(connection.makefile().readline().strip())


def greet(where: str) -> None:
    host, port = where.split(":")
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                connection.sendall(f"{task['type']} {task['index']}\n".encode())
                return
        except ConnectionRefusedError:
            time.sleep(0.01)


listening = threading.Thread(target=listen)
listening.start()
for where in others:
    greet(where)
listening.join()
print(f"{task['type']} {task['index']} was greeted by {', '.join(sorted(greetings))}")
