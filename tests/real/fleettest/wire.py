"""Plain HTTP to a port of this machine, for everything that is not a client library's job."""

import http.client
import json
import time
from dataclasses import dataclass

HOST = "127.0.0.1"
TIMEOUT_S = 60


@dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    def json(self):
        return json.loads(self.body)


def request(port, method, path, body=None, headers=None):
    """One request over a connection of its own. `body` is sent as JSON; header names come back in
    small letters."""
    data = None if body is None else json.dumps(body).encode()
    connection = http.client.HTTPConnection(HOST, port, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, data, {"content-type": "application/json", **(headers or {})})
        reply = connection.getresponse()
        return Answer(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
    finally:
        connection.close()


def get_json(port, path):
    return request(port, "GET", path).json()


def wait_until(condition, seconds, step_s=0.002):
    """Seconds until `condition()` held, or None if it did not in time."""
    began = time.perf_counter()
    while True:
        if condition():
            return time.perf_counter() - began
        if time.perf_counter() - began > seconds:
            return None
        time.sleep(step_s)
