# shellcheck shell=bash
# prepare.sh: what a test script does before Python takes over; sourced, never run.
#
# Finds the scripts that install and start engines, builds the proxy, makes the Python environment
# of the clients. It starts nothing and ends nothing.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(cd "$HERE/../.." && pwd)
ENGINE_SCRIPTS=${SHEARWATER_ENGINE_SCRIPTS:-$REPO/../shared/engines}
export SHEARWATER_ENGINES=${SHEARWATER_ENGINES:-$HOME/.cache/shearwater-engines}
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1 PYTHONDONTWRITEBYTECODE=1

skip() {
  echo "SKIP: $*" >&2
  exit 0
}

# Without the scripts there is no engine to test with.
find_engine_scripts() {
  [[ -f $ENGINE_SCRIPTS/engine-up.sh ]] ||
    skip "no engine scripts in $ENGINE_SCRIPTS (set SHEARWATER_ENGINE_SCRIPTS); NOTHING WAS TESTED"
  ENGINE_SCRIPTS=$(cd "$ENGINE_SCRIPTS" && pwd)
  export SHEARWATER_ENGINE_SCRIPTS=$ENGINE_SCRIPTS
}

# install PART...: engines and models, kept where they are if they are there.
install() {
  bash "$ENGINE_SCRIPTS/install.sh" "$@"
}

# SHEARWATER_BIN names a proxy that is built already.
build_proxy() {
  if [[ -z ${SHEARWATER_BIN:-} ]]; then
    (cd "$REPO" && cargo build --release --locked -p proxy --bin shearwater)
    SHEARWATER_BIN=${CARGO_TARGET_DIR:-$REPO/target}/release/shearwater
  fi
  export SHEARWATER_BIN
}

# SHEARWATER_LOADGEN names a load generator, which is also the simulated engine, that is built already.
build_loadgen() {
  if [[ -z ${SHEARWATER_LOADGEN:-} ]]; then
    (cd "$REPO" && cargo build --release --locked -p loadgen --bin shearwater-loadgen)
    SHEARWATER_LOADGEN=${CARGO_TARGET_DIR:-$REPO/target}/release/shearwater-loadgen
  fi
  export SHEARWATER_LOADGEN
}

# The environment is made anew when requirements.txt changes.
make_clients() {
  CLIENTS=$SHEARWATER_ENGINES/test-clients
  if ! cmp -s "$HERE/requirements.txt" "$CLIENTS/installed.txt"; then
    rm -rf "$CLIENTS"
    "${PYTHON:-python3}" -m venv "$CLIENTS"
    "$CLIENTS/bin/pip" install -q --disable-pip-version-check --no-deps --only-binary :all: \
      -r "$HERE/requirements.txt"
    cp "$HERE/requirements.txt" "$CLIENTS/installed.txt"
  fi
}

# The libraries and programs of the other language, pinned in node-clients.json. Without Node.js it is installed where
# the system's own packages can be; the tests skip, loudly, what cannot be had.
make_node_clients() {
  export SHEARWATER_NODE_CLIENTS=$SHEARWATER_ENGINES/node-clients
  if ! command -v npm >/dev/null && command -v apt-get >/dev/null; then
    apt-get -qq update && apt-get -qq install -y nodejs npm || true
  fi
  if ! command -v npm >/dev/null; then
    echo "SKIP: no npm here and no way to install it; NOTHING OF NODE.JS IS TESTED" >&2
  elif ! cmp -s "$HERE/node-clients.json" "$SHEARWATER_NODE_CLIENTS/package.json"; then
    rm -rf "$SHEARWATER_NODE_CLIENTS.new" && mkdir -p "$SHEARWATER_NODE_CLIENTS.new"
    cp "$HERE/node-clients.json" "$SHEARWATER_NODE_CLIENTS.new/package.json"
    if npm install --prefix "$SHEARWATER_NODE_CLIENTS.new" --silent --no-audit --no-fund; then
      rm -rf "$SHEARWATER_NODE_CLIENTS" && mv "$SHEARWATER_NODE_CLIENTS.new" "$SHEARWATER_NODE_CLIENTS"
    else
      echo "SKIP: npm could not install node-clients.json; NOTHING OF NODE.JS IS TESTED" >&2
    fi
  fi
}

# hand_over MODULE ARGUMENTS...: the rest is Python, which also ends what it started.
hand_over() {
  cd "$HERE"
  exec "$CLIENTS/bin/python" -m "$1" "${@:2}"
}
