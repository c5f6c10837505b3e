"""The TypeScript libraries, in one Node.js process that makes many calls at once."""

import json
import os
import shutil
import subprocess
import threading
from concurrent.futures import Future
from pathlib import Path

from .fleet import MODEL
from .outcome import Outcome

FOLDER = Path(os.environ["SHEARWATER_NODE_CLIENTS"])
PROGRAM = Path(__file__).with_name("node_sdks.mjs")
PATIENCE_S = 120


def there():
    """Whether Node.js and the libraries are installed."""
    return bool(shutil.which("node")) and (FOLDER / "node_modules" / "openai").is_dir()


class Node:
    """Started once; `call` may be used from many threads."""

    def __init__(self):
        self._waiting = {}
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            ["node", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                waiting = self._waiting.pop(answer["id"])
            waiting.set_result(Outcome(**answer["outcome"]))

    def call(self, api, stream, base, model, prompt):
        waiting = Future()
        asked = {"api": api, "stream": stream, "base": base, "model": model or MODEL, "prompt": prompt}
        with self._lock:
            asked["id"] = id(waiting)
            self._waiting[asked["id"]] = waiting
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
        return waiting.result(PATIENCE_S)

    def end(self):
        self._process.stdin.close()
        self._process.terminate()
        self._process.wait()
