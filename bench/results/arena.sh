#!/bin/sh
# Makes the arena's recorded results anew: every policy on the public traces, and the bars of the default policy.
# TRACES is the folder with the traces; see README.md beside this file. Takes a few minutes on two cores.
set -eu
cd "$(dirname "$0")"
: "${TRACES:?the folder of the traces}"
arena() {
    name=$1
    shift
    cargo run --quiet --release -p bench --bin shearwater-arena -- --json "$name.json" "$@"
}
chat="$TRACES/mooncake_conversation.jsonl.gz"
agents="$TRACES/cc_sessions.growth.jsonl.gz"
{
    arena conversation --trace "$chat" --backends 8,32,128
    arena conversation-c1000 --trace "$chat" --backends 8,32,128 --capacity 1000
    arena conversation-rho1.4 --trace "$chat" --backends 32 --rho 1.4
    arena synthetic --trace "$TRACES/mooncake_synthetic.jsonl.gz" --backends 8,32,128
    arena arxiv --trace "$TRACES/mooncake_arxiv_first1000.jsonl.gz" --backends 8,32,128 --backends-per-copy 8
    arena agents-n8 --trace "$agents" --backends 8
    arena agents-n32 --trace "$agents" --backends 32 --until 1200
    arena agents-n128 --trace "$agents" --backends 128 --until 600
    arena agents-k24-fifo --trace "$agents" --backends 8 --sessions-per-backend 24
    arena agents-k24-least-first --trace "$agents" --backends 8 --sessions-per-backend 24 --sched 500
    # The router holds requests back: at most 16 on an engine; then any room will do at once, or only the conversation's home.
    held() {
        name=$1
        shift
        arena "$name" --trace "$agents" --backends 8 --sessions-per-backend 24 --hold-requests 16 --policy cost,session "$@"
    }
    held agents-k24-held
    held agents-k24-held-for-home --home-wait-ms 600000
    # What a wrong idea of the engines' capacity costs.
    for factor in 0.25 0.5 2 4; do
        arena "agents-assumed-$factor" --trace "$agents" --backends 8 --policy cost --assumed-capacity "$factor"
    done
    arena generated --trace generated --backends 8,32
} | tee arena.txt
arena machine --trace generated --backends 1 --until 1 --policy random --facts arena.facts.json >machine.txt
rm -f machine.json machine.txt
