"""Processes under measurement: started on one core, counted with all their children, ended by id.

CPU time comes from the scheduler's own accounting (schedstat, nanoseconds), summed over every thread
of every process of the tree; so does the time threads were ready and had to wait for a core, which
tells whether the machine was quiet. Memory is the resident set; system calls are counted by the kernel's
tracepoint for a moment outside the timed window, because counting them costs time.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

PROC = Path("/proc")
PAGE_KB = os.sysconf("SC_PAGE_SIZE") / 1024


def start(core, command, log, env=None, stdin=subprocess.DEVNULL, stdout=None):
    """Starts a command on one core, in a process group of its own, its words going to `log`."""
    with open(log, "ab") as words:
        return subprocess.Popen(
            ["taskset", "-c", str(core), *map(str, command)],
            stdin=stdin,
            stdout=stdout or words,
            stderr=words,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )


def end(process, patience_s=3.0):
    """Asks the process we started to end; after a while, its whole group has to."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def tree(pid):
    """The process and all its descendants."""
    found = [pid]
    for children in (PROC / str(pid) / "task").glob("*/children"):
        try:
            found += [one for child in children.read_text().split() for one in tree(int(child))]
        except OSError:
            pass
    return found


def cpu_by_thread(pid):
    """(nanoseconds on a core, nanoseconds waiting for one) of every thread of the tree, by its id."""
    threads = {}
    for process in tree(pid):
        for stat in (PROC / str(process) / "task").glob("*/schedstat"):
            try:
                ran, waited = stat.read_text().split()[:2]
                threads[stat.parent.name] = int(ran), int(waited)
            except (OSError, ValueError):
                pass
    return threads


def between(before, after):
    """(ran, waited) between two readings; a thread that appeared in between counts whole."""
    new = (0, 0)
    pairs = [(before.get(thread, new), times) for thread, times in after.items()]
    return tuple(sum(late[which] - early[which] for early, late in pairs) for which in (0, 1))


def resident_kb(pid):
    """Resident memory of the tree."""
    pages = 0
    for process in tree(pid):
        try:
            pages += int((PROC / str(process) / "statm").read_text().split()[1])
        except OSError:
            pass
    return pages * PAGE_KB


def system_calls(pid, seconds):
    """System calls the tree makes in so many seconds, or None where they cannot be counted."""
    pids = [str(one) for one in tree(pid)]
    if shutil.which("perf"):
        command = ["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", ",".join(pids)]
        done = subprocess.run(
            [*command, "--", "sleep", str(seconds)], capture_output=True, text=True
        )
        found = re.search(r"^(\d+|<not counted>),.*raw_syscalls", done.stderr, re.MULTILINE)
        if found:
            # Not counted is what a process that never ran has.
            return int(found.group(1)) if found.group(1).isdigit() else 0
    if shutil.which("strace"):
        return traced_calls(pids, seconds)
    time.sleep(seconds)
    return None


def traced_calls(pids, seconds):
    """The same by strace, which slows what it watches down but counts right."""
    attach = [word for pid in pids for word in ("-p", pid)]
    tracer = subprocess.Popen(
        ["strace", "-f", "-c", "-U", "calls,name", *attach],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(seconds)
    # Not SIGINT, which is ignored by what a shell starts in the background.
    tracer.terminate()
    words = tracer.communicate()[1]
    total = re.search(r"^\s*(\d+)\s+total", words, re.MULTILINE)
    return int(total.group(1)) if total else None
