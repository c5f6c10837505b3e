"""A witness between the proxy and one llama.cpp server. It passes every byte on as it came, and of each request that names
a slot it notes what the server itself says of that slot at that moment."""

import json
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field

from . import wire

PIECE = 65536


@dataclass
class Tap:
    """Stands for the server before the proxy; `named` and `busy` count the requests that named a slot."""

    engine: object
    port: int
    named: int = 0
    busy: int = 0
    slots: set = field(default_factory=set)

    @property
    def name(self):
        return self.engine.name

    def look(self, head, body):
        """Notes whether a slot is named and free. Probes name none."""
        if not head.startswith(b"POST") or b'"id_slot"' not in body:
            return
        slot = json.loads(body)["id_slot"]
        says = {one["id"]: one["is_processing"] for one in wire.get_json(self.engine.port, "/slots")}
        self.named += 1
        self.busy += says[slot]
        self.slots.add(slot)

    def forward(self, client, server):
        """Requests, each looked at once it is whole."""
        held = b""
        while piece := client.recv(PIECE):
            held += piece
            while (length := whole(held)) is not None:
                head, _, body = held[:length].partition(b"\r\n\r\n")
                self.look(head, body)
                server.sendall(held[:length])
                held = held[length:]

    def serve(self, client):
        try:
            server = socket.create_connection((wire.HOST, self.engine.port))
        except OSError:
            client.close()
            return
        ways = ((self.forward, client, server), (passed_on, server, client))
        for way, source, target in ways:
            threading.Thread(target=until_closed, args=(way, source, target), daemon=True).start()


def whole(held):
    """Bytes of the first request, once all of it is there. The proxy sends bodies by length."""
    end = held.find(b"\r\n\r\n")
    if end < 0:
        return None
    length = 0
    for line in held[:end].split(b"\r\n"):
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    return end + 4 + length if len(held) >= end + 4 + length else None


def passed_on(source, target):
    while piece := source.recv(PIECE):
        target.sendall(piece)


def until_closed(way, source, target):
    """Whoever closes or breaks, both are shut: what one side sees, the other one does."""
    try:
        way(source, target)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


@contextmanager
def tap(engine):
    listener = socket.create_server((wire.HOST, 0), backlog=256)
    made = Tap(engine, listener.getsockname()[1])

    def accepting():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.serve(client)

    threading.Thread(target=accepting, daemon=True).start()
    try:
        yield made
    finally:
        listener.close()
