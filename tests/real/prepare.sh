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

# hand_over MODULE ARGUMENTS...: the rest is Python, which also ends what it started.
hand_over() {
  cd "$HERE"
  exec "$CLIENTS/bin/python" -m "fleettest.$1" "${@:2}"
}
