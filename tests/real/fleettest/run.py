"""What both test programs do around their steps."""

import signal
import sys
import time
import traceback


def ended(_signal, _frame):
    sys.exit(143)


def all_of(steps, out):
    """Runs the steps in order. One that breaks is a failed bar, and the next one still runs."""
    signal.signal(signal.SIGTERM, ended)
    for name, step in steps.items():
        began = time.perf_counter()
        try:
            step(out)
        except Exception as error:
            traceback.print_exc()
            out.bar(f"{name}: ran to its end", False, repr(error)[:300])
        out.figure(f"{name} took_s", round(time.perf_counter() - began, 1))
