"""The names that DNS has for pods: `<hostname>.<service>.<namespace>.svc.<domain>`, as Endpoints list them."""

import contextlib
import socket
import struct
import threading
from typing import Self

from tests.kubernetes.daemons import DOMAIN, NAMESPACE, Kubernetes

_HEADER = struct.Struct("!HHHHHH")
_ANSWER, _NOT_FOUND = 0x8580, 0x8583
_A, _IN = 1, 1
_NAME_OF_THE_QUESTION = 0xC00C


class ClusterDns:
    def __init__(self, kubernetes: Kubernetes) -> None:
        self._kubernetes = kubernetes
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((kubernetes.address, 53))
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # it is not connected, but `recvfrom` returns
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            query, client = self._socket.recvfrom(4096)
            if not query:
                return
            self._socket.sendto(self._answer(query), client)

    def _answer(self, query: bytes) -> bytes:
        labels, end = list[bytes](), _HEADER.size
        while size := query[end]:
            labels.append(query[end + 1 : end + 1 + size])
            end += 1 + size
        question = query[_HEADER.size : end + 5]
        [kind] = struct.unpack_from("!H", query, end + 1)
        found = self._records().get(b".".join(labels).decode().lower())
        addresses = [found] if found and kind == _A else []
        [number] = struct.unpack_from("!H", query)
        code = _ANSWER if found else _NOT_FOUND
        answers = [
            struct.pack("!HHHIH", _NAME_OF_THE_QUESTION, _A, _IN, 0, 4) + socket.inet_aton(address)
            for address in addresses
        ]
        return _HEADER.pack(number, code, 1, len(answers), 0, 0) + question + b"".join(answers)

    def _records(self) -> dict[str, str]:
        return {
            f"{address['hostname']}.{service['metadata']['name']}.{NAMESPACE}.svc.{DOMAIN}": address["ip"]
            for service in self._kubernetes.list("endpoints")
            for subset in service.get("subsets") or ()
            for address in subset.get("addresses") or ()
            if "hostname" in address
        }
