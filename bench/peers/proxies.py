"""The proxies compared: how each is had, started and told apart. Their settings are in templates/.

Each gets one core and one thread for its data path. README.md says why each setting is fair.
"""

import http.client
import json
import resource
import shutil
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

import install
import processes

HERE = Path(__file__).resolve().parent
# Descriptors this machine lets a process have, and connections that fit with two for each stream.
FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
CONNECTIONS = min(8_000, FILES // 2 - 500)


class NotReady(Exception):
    """A proxy was started and does not serve; the text says what is known."""


class Proxy:
    """A proxy that can be started before a fleet."""

    def __init__(self, name, binary, version, command, env=None, asked=False, ready=None):
        self.name = name
        # Where it says that it is ready, if it does: which of its ports, and a path.
        self._ready = ready
        # Whether it answers questions on its standard streams. Others write theirs to the log: a
        # pipe that nobody reads would stop a proxy that talks much.
        self._asked = asked
        self.binary = binary
        self.version = version
        self._command = command
        self._env = env or {}

    def start(self, core, urls, folder):
        """A running proxy before these engines, ready to serve."""
        port, admin = free_ports()
        hosts = [urlsplit(url).netloc for url in urls]
        asked = {"port": port, "admin": admin, "hosts": hosts, "folder": folder}
        command = self._command(self.binary, **asked)
        ready = self._ready and (asked[self._ready[0]], self._ready[1])
        return Running(self.name, core, command, self._env, port, folder, self._asked, ready)


class Running:
    """A proxy while it runs."""

    def __init__(self, name, core, command, env, port, folder, asked, ready):
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / f"{name}.log"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE} if asked else {}
        self.process = processes.start(core, command, self.log, env, **pipes)
        self.pid = self.process.pid
        try:
            self._wait_until_it_serves(name, port, ready, 30)
        except NotReady:
            self.end()
            raise

    def _wait_until_it_serves(self, name, port, ready, seconds):
        deadline, why = time.monotonic() + seconds, "it did not listen"
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise NotReady(f"{name} ended with status {self.process.returncode}: {self._last_words()}")
            try:
                status = ask(port)
                # Its own word, too: no orchestrator sends it traffic before.
                if status == 200 and ready:
                    status = status_of(ready[0], "GET", ready[1])
            except (OSError, http.client.HTTPException) as error:
                status, why = None, str(error)
            if status == 200:
                return
            why = f"it answers {status}" if status else why
            time.sleep(0.05)
        raise NotReady(f"{name} does not serve after {seconds} s: {why}; {self._last_words()}")

    def _last_words(self):
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"

    def end(self):
        processes.end(self.process)


def ask(port):
    """The status of a chat of one token: the only sign of readiness that means the same everywhere."""
    message = [{"role": "user", "content": "ready?"}]
    body = json.dumps({"model": "sim", "messages": message, "max_tokens": 1})
    headers = {"content-type": "application/json"}
    return status_of(port, "POST", "/v1/chat/completions", body, headers)


def status_of(port, *request):
    """The status of a request's reply."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(*request)
        reply = connection.getresponse()
        reply.read()
        return reply.status
    finally:
        connection.close()


def free_ports():
    """Two ports nobody listens on now; held at once, so that they are two."""
    with socket.socket() as one, socket.socket() as other:
        for chooser in (one, other):
            chooser.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def rendered(template, folder, **values):
    """The template with each @NAME@ replaced, as a file in `folder`."""
    text = (HERE / "templates" / template).read_text()
    for name, value in {"FOLDER": folder, "FILES": FILES, **values}.items():
        text = text.replace(f"@{name}@", str(value))
    path = folder / template
    path.write_text(text)
    return str(path)


def lines(pattern, hosts):
    """The pattern once a backend: {at} is host:port, {host} and {port} its parts, {n} a number."""
    parts = [(n, at, *at.rsplit(":", 1)) for n, at in enumerate(hosts)]
    return "\n".join(pattern.format(n=n, at=at, host=host, port=port) for n, at, host, port in parts)


def shearwater_command(binary, port, admin, hosts, folder, health=""):
    backends = lines('[[backend]]\nurl = "http://{at}"', hosts)
    values = {"PORT": port, "ADMIN": admin, "BACKENDS": backends, "HEALTH": health}
    return [binary, "--config", rendered("shearwater.toml", folder, **values)]


def counted_command(binary, **asked):
    # Probing and scraping allocate too; they are put off so that only requests are counted.
    return shearwater_command(
        binary, **asked, health="[health]\ninterval_ms = 600000\nscrape_interval_ms = 600000\n"
    )


def bare_ring_command(binary, port, admin, hosts, folder):
    return [binary, "--listen", f"127.0.0.1:{port}", *(w for at in hosts for w in ("--backend", at))]


def nginx_command(binary, port, admin, hosts, folder):
    backends = lines("    server {at} max_fails=0;", hosts)
    config = rendered("nginx.conf", folder, PORT=port, BACKENDS=backends)
    return [binary, "-p", str(folder), "-e", str(folder / "nginx.err"), "-c", config]


def haproxy_command(binary, port, admin, hosts, folder):
    backends = lines("  server s{n} {at} pool-max-conn 4096", hosts)
    values = {"PORT": port, "BACKENDS": backends, "CONNECTIONS": CONNECTIONS}
    return [binary, "-db", "-f", rendered("haproxy.cfg", folder, **values)]


def envoy_command(binary, port, admin, hosts, folder):
    endpoint = "        - endpoint: {{ address: {{ socket_address: {{ address: {host}, port_value: {port} }} }} }}"
    config = rendered("envoy.yaml", folder, PORT=port, ADMIN=admin, BACKENDS=lines(endpoint, hosts))
    return [binary, "-c", config, "--concurrency", "1", "-l", "error", "--disable-hot-restart"]


def router_command(*start, policy, more):
    """The three routers of LLM traffic share their flags."""

    def command(binary, port, admin, hosts, folder):
        urls = [f"http://{at}" for at in hosts]
        here = ["--host", "127.0.0.1", "--port", port, "--worker-urls", *urls, "--policy", policy]
        metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", admin]
        return [binary, *start, *here, *metrics, *more]

    return command


# One thread of their runtime for the one core they get.
ONE_THREAD = {"TOKIO_WORKER_THREADS": "1"}
MANY = ["--max-concurrent-requests", "16384"]

# name: where its binary comes from, how it is started, its environment
PEERS = {
    "nginx": (install.nginx, nginx_command, {}),
    "haproxy": (install.haproxy, haproxy_command, {}),
    "envoy": (install.envoy, envoy_command, {}),
    "smg": (
        install.smg,
        router_command("launch", policy="cache_aware", more=["--log-level", "warn", *MANY]),
        ONE_THREAD,
    ),
    "sglang-router": (
        install.sglang_router,
        router_command(
            "-m", "sglang_router.launch_router", policy="cache_aware", more=["--log-level", "warn", *MANY]
        ),
        ONE_THREAD,
    ),
    "vllm-router": (
        install.vllm_router,
        router_command(
            policy="round_robin",
            more=["--worker-startup-check-interval", "1", "--log-level", "warning"],
        ),
        ONE_THREAD,
    ),
}

# Where those say that they are ready who do: which of their ports, and a path.
READY = {
    "envoy": ("admin", "/ready"),
    "smg": ("port", "/readiness"),
    "sglang-router": ("port", "/readiness"),
    "vllm-router": ("port", "/readiness"),
}

# Not compared, each with the reason; the results carry this too.
LEFT_OUT = {
    "dynamo frontend": "routes to its own engine processes only, found through its own discovery; "
    "it has no way to stand before engines that speak HTTP, so the same fleet cannot be put behind it",
}


def own(name, binary):
    """A build of ours."""
    version = install.version_of([str(binary), "--version"])
    return Proxy(name, str(binary), version, shearwater_command, ready=("admin", "/readyz"))


def bare_ring(binary):
    return Proxy("bare-ring", str(binary), "this repository", bare_ring_command)


def counted(binary):
    """Ours with its allocations counted; never timed."""
    return Proxy("counted", str(binary), "this repository", counted_command, asked=True)


def peer(name, otherwise=None):
    """A peer, installed if it was not, and started `otherwise` than PEERS says; raises install.NotInstalled."""
    get, command, env = PEERS[name]
    binary, command = get(), otherwise or command
    version = install.version_of([binary, "-v"]) if name == "nginx" else install.pinned(name)
    return Proxy(name, binary, version, command, env, ready=READY.get(name))


def nginx_at_hand():
    """[nginx] if it is installed or was fetched before, else []."""
    there = shutil.which("nginx") or (install.cache() / "nginx-deb").exists()
    return [peer("nginx")] if there else []
