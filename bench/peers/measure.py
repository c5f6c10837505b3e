"""One measurement: a proxy before a fleet, under a load, looked at from outside.

What is divided by what: the fleet's own count of produced tokens (one token is one event) is read at
both ends of a window in which the load is steady; so is the CPU time of every thread of the proxy.
Latencies are the clients': time to first token from the intended send time, and each event's age,
from the stamp the engine wrote into it to the moment the client had read it.
"""

import json
import time

import facts
import processes
from fleet import Fleet

PROXY_CORE = 1
LOAD_CORE = 0
# Kept free at both ends of the window: looking at processes takes time of the cores under measurement, and the
# client's clock starts a moment later than ours.
EDGES_MS = 50, 100
# A client that is not done by then is ended, and everything it waited for counts as lost.
PATIENCE_S = 60


class Bench:
    """Where everything is: binaries, cores, a folder for logs."""

    def __init__(self, loadgen, folder, seed):
        self.loadgen = loadgen
        self.folder = folder
        self.seed = seed

    def fleet(self, load):
        return Fleet(self.loadgen, LOAD_CORE, load.engines, load.fleet, self.folder)

    def client(self, load, urls, round_number):
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        command = [self.loadgen, "run", "--model", "sim", "--seed", str(self.seed + round_number)]
        # `=` keeps a thousand addresses one argument.
        command += [f"--url={','.join(urls)}", "--json", str(report), "--drain-ms", "20000"]
        if load.timed:
            begin, end = load.window_at * 1e3 + EDGES_MS[0], (load.window_at + load.window) * 1e3 - EDGES_MS[1]
            command += [f"--ages-from={begin:.0f}", f"--ages-until={end:.0f}"]
        command += load.client
        return processes.start(LOAD_CORE, command, self.folder / "client.log"), report


class Moment:
    """What is read at one end of a window."""

    def __init__(self, fleet, proxy, client):
        self.at = time.monotonic()
        self.tokens = fleet.sums()["generated_tokens"]
        self.proxy = processes.cpu_by_thread(proxy.pid) if proxy else {}
        self.load = {
            **processes.cpu_by_thread(client.pid),
            **processes.cpu_by_thread(fleet.process.pid),
        }


def measure(bench, load, proxy, round_number, fleet):
    """The figures of one run, as a dictionary; `proxy` is None for clients straight at the engines."""
    result = {
        "load": load.name,
        "proxy": proxy.name if proxy else "direct",
        "round": round_number,
        "load_average": round(facts.load_average(), 2),
    }
    before = facts.cpu_times()
    try:
        running = proxy.start(PROXY_CORE, fleet.urls, bench.folder) if proxy else None
    except Exception as error:  # A peer that does not start is a result too.
        return {**result, "failed": str(error)}
    try:
        fleet.patch_faults(load.faults)
        result |= observe(bench, load, running, round_number, fleet)
        result["stolen"] = facts.stolen_share(before, facts.cpu_times())
    except Exception as error:
        result["failed"] = f"{type(error).__name__}: {error}"
    finally:
        fleet.patch_faults(dict.fromkeys(load.faults, 0))
        if running:
            running.end()
    return result


def observe(bench, load, running, round_number, fleet):
    idle_kb = processes.resident_kb(running.pid) if running else 0
    client, report = bench.client(load, [running.url] if running else fleet.urls, round_number)
    try:
        started = time.monotonic()
        figures = window(load, running, client, fleet)
        if running:
            figures |= memory(load, running, idle_kb, started)
            figures |= calls(load, running, fleet, round_number)
        client.wait(PATIENCE_S)
        if running:
            figures["after_kb"] = processes.resident_kb(running.pid)
    finally:
        processes.end(client)
    figures |= told_by_client(json.loads(report.read_text()))
    figures["nothing_left_running"] = fleet.idle_within(2.0)
    return figures


def window(load, running, client, fleet):
    """CPU time by unit of work, and how full both cores were."""
    time.sleep(load.window_at)
    begin = Moment(fleet, running, client)
    time.sleep(load.window)
    end = Moment(fleet, running, client)
    seconds, units = end.at - begin.at, end.tokens - begin.tokens
    figures = {
        "units": units,
        "per_s": units / seconds,
    }
    ran, waited = processes.between(begin.load, end.load)
    figures |= {"load_core": ran / 1e9 / seconds, "load_waited": waited / 1e9 / seconds}
    if running and load.timed:
        ns, waited = processes.between(begin.proxy, end.proxy)
        figures["proxy_waited"] = waited / 1e9 / seconds
        figures["cpu_us"] = ns / 1e3 / units if units else None
        figures["proxy_core"] = ns / 1e9 / seconds
        figures["per_core_s"] = units / (ns / 1e9) if ns else None
    return figures


def memory(load, running, idle_kb, started):
    """Resident memory before the load, in its window, and once more where the load asks for it."""
    figures = {"idle_kb": idle_kb, "window_kb": processes.resident_kb(running.pid)}
    if load.look_again_at:
        time.sleep(max(0.0, started + load.look_again_at - time.monotonic()))
        figures["again_kb"] = processes.resident_kb(running.pid)
    return figures


def calls(load, running, fleet, round_number):
    """System calls by unit of work, once a load: they hardly vary."""
    if round_number > 1 or load.saturates or not load.timed:
        return {}
    before = fleet.sums()["generated_tokens"]
    made = processes.system_calls(running.pid, load.counted)
    units = fleet.sums()["generated_tokens"] - before
    return {"system_calls": made / units if made is not None and units else None}


def told_by_client(report):
    latency, requests = report["latency"], report["requests"]
    pick = lambda name: {key: latency[name][key] for key in ("p50_ms", "p99_ms", "p99_9_ms", "count")}
    return {
        "sent": requests["sent"],
        "complete": requests["complete"],
        "lost": requests["failed"] + requests["unfinished"],
        # Of these, those still waiting 20 s after the last request was sent.
        "unfinished": requests["unfinished"],
        "cancelled": requests["cancelled_in_prefill"] + requests["cancelled_mid_stream"],
        "complete_per_s": requests["complete_per_s"],
        "errors": report["error_examples"],
        "digest": report["replies_digest"],
        "ttft": pick("ttft"),
        "event": pick("event_delay"),
    }


def allocations(bench, load, counted, fleet):
    """Allocations by unit of work in the window; nothing is timed."""
    running = counted.start(PROXY_CORE, fleet.urls, bench.folder)
    client, _ = bench.client(load, [running.url], 1)
    try:
        time.sleep(load.window_at)
        count, units = allocated(running), fleet.sums()["generated_tokens"]
        time.sleep(load.window)
        count, units = allocated(running) - count, fleet.sums()["generated_tokens"] - units
        client.wait(PATIENCE_S)
    finally:
        processes.end(client)
        running.end()
    return count / units if units else None


def allocated(running):
    running.process.stdin.write(b"\n")
    running.process.stdin.flush()
    return int(running.process.stdout.readline())
