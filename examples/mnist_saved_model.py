"""Learns to tell a drawn 1 from a drawn 7, with a parameter server. Uses only the standard library.

Every replica runs this file and reads its role and the addresses of the others from TF_CONFIG. The parameter server
holds the weights, master and workers each learn from their own drawings, and the master saves the model. Without a
parameter server the master holds the weights itself, so the file also runs as a single process.
"""

import json
import math
import os
import random
import socket
import socketserver
import threading
import time

SIDE = 8
STEPS = 60
BATCH = 32
RATE = 0.5


def main():
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = config["cluster"], config["task"]
    if task["type"] == "ps":
        keep_weights(cluster["ps"][task["index"]])
    else:
        train(cluster, task)


def train(cluster, task):
    learners = sum(len(members) for role, members in cluster.items() if role != "ps")
    weights = RemoteWeights(cluster["ps"][0]) if "ps" in cluster else Weights()
    print(f"{task['type']} {task['index']}: learning together with {learners - 1} others")
    learn(weights, random.Random(f"{task['type']}{task['index']}"), talkative=task["type"] != "worker")
    weights.finish()
    if task["type"] in ("chief", "master"):
        weights.join(learners)
        save(weights.pull())


def learn(weights, chance, talkative):
    for step in range(1, STEPS + 1):
        now = weights.pull()
        gradient, loss = [0.0] * len(now), 0.0
        for pixels, is_seven in (drawing(chance) for _ in range(BATCH)):
            guess = probability(now, pixels)
            loss -= math.log(max(guess if is_seven else 1 - guess, 1e-9)) / BATCH
            for i, pixel in enumerate(pixels):
                gradient[i] += (guess - is_seven) * pixel / BATCH
        weights.push(gradient)
        if talkative and step % 10 == 0:
            print(f"step {step:3}  loss {loss:.4f}")


def save(weights):
    chance = random.Random("test")
    tests = [drawing(chance) for _ in range(1000)]
    right = sum((probability(weights, pixels) > 0.5) == is_seven for pixels, is_seven in tests)
    with open("saved_model.json", "w") as file:
        json.dump({"accuracy": right / len(tests), "weights": weights}, file)
    print(f"saved saved_model.json, accuracy {right / len(tests):.1%}")
    print("Done training!")


def drawing(chance):
    """(pixels and a constant 1, whether it is a seven)"""
    is_seven = chance.random() < 0.5
    column, top = chance.randrange(3, SIDE - 1), chance.randrange(2)
    pixels = [[chance.random() * 0.4 for _ in range(SIDE)] for _ in range(SIDE)]
    for row in range(top, SIDE - 1):
        pixels[row][column] += 0.6
    if is_seven:
        for left in range(1, 4):
            pixels[top][column - left] += 0.6
    return [value for row in pixels for value in row] + [1.0], is_seven


def probability(weights, pixels):
    z = sum(w * p for w, p in zip(weights, pixels, strict=True))
    return 1 / (1 + math.exp(-max(min(z, 30), -30)))


class Weights:
    """In this process, shared by threads."""

    def __init__(self):
        self._values = [0.0] * (SIDE * SIDE + 1)
        self._finished = 0
        self._changed = threading.Condition()

    def pull(self):
        with self._changed:
            return list(self._values)

    def push(self, gradient):
        with self._changed:
            self._values = [w - RATE * g for w, g in zip(self._values, gradient, strict=True)]

    def finish(self):
        with self._changed:
            self._finished += 1
            self._changed.notify_all()

    def join(self, learners):
        with self._changed:
            self._changed.wait_for(lambda: self._finished >= learners)


class RemoteWeights:
    """On the ps: a line of JSON there, a line of JSON back."""

    def __init__(self, address):
        self._file = connect(address).makefile("rw")

    def pull(self):
        return self._ask("pull")

    def push(self, gradient):
        self._ask("push", gradient)

    def finish(self):
        self._ask("finish")

    def join(self, learners):
        self._ask("join", learners)

    def _ask(self, what, *values):
        self._file.write(json.dumps([what, *values]) + "\n")
        self._file.flush()
        return json.loads(self._file.readline())


def keep_weights(address):
    """Serves until it is ended, which happens when the master is done."""
    weights = Weights()

    class Answers(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                what, *values = json.loads(line)
                answer = getattr(weights, what)(*values)
                self.wfile.write(json.dumps(answer).encode() + b"\n")

    host, port = address.rsplit(":", 1)
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer((host, int(port)), Answers) as server:
        print(f"ps: keeping the weights on {address}")
        server.serve_forever()


def connect(address):
    """All replicas start at the same time, so the ps may need a moment longer."""
    host, port = address.rsplit(":", 1)
    for _ in range(200):
        try:
            return socket.create_connection((host, int(port)))
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise SystemExit(f"the ps does not answer on {address}")


if __name__ == "__main__":
    main()
