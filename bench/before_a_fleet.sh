# What scripts share that drive the product before a simulated fleet. Sourced, never run; everything it starts is ended
# with the script that sourced it, and its files go with it.
#
# Gives: SCRATCH, a folder; fail; until_up URL; start_proxy BINARIES OPTION..., which sets LISTEN, ADMIN and PROXY (its
# process) and stands the proxy of that folder before two simulated engines started with these options; end_proxy.

SCRATCH="$(mktemp -d)"
PIDS=()

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

end_proxy() {
    for pid in "${PIDS[@]:+${PIDS[@]}}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    PIDS=()
}

finish() {
    end_proxy
    rm -rf "$SCRATCH"
}
trap finish EXIT

# Waits until an address answers.
until_up() {
    local deadline=$((SECONDS + 60))
    until curl -fs --max-time 5 -o /dev/null "$1"; do
        [[ $SECONDS -lt $deadline ]] || fail "$1 does not answer: $(cat "$SCRATCH"/*.log)"
        sleep 0.2
    done
}

# A port nobody listens on.
free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 12000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    printf '%d' "$port"
}

start_proxy() {
    local binaries=$1 port backends=()
    shift
    for number in 1 2; do
        port=$(free_port)
        "$binaries/shearwater-loadgen" engine --listen "127.0.0.1:$port" "$@" >"$SCRATCH/engine$number.log" 2>&1 &
        PIDS+=($!)
        until_up "http://127.0.0.1:$port/health"
        backends+=(--backend "http://127.0.0.1:$port")
    done
    LISTEN="127.0.0.1:$(free_port)"
    ADMIN="127.0.0.1:$(free_port)"
    "${PROXY_BINARY:-$binaries/shearwater}" "${backends[@]}" --listen "$LISTEN" --admin "$ADMIN" >"$SCRATCH/proxy.log" 2>&1 &
    PROXY=$!
    PIDS+=("$PROXY")
    until_up "http://$ADMIN/readyz"
}
