#!/bin/sh
# Puts the index beside Dynamo's and SMG's anew: index-peers.json and index-peers.txt. TRACES is the folder with the traces;
# see README.md beside this file. Builds some 250 packages, then takes about ten minutes. Two cores at least, and nothing
# else to do for them: a core that is taken away counts as an index that does not keep up. Where that cannot be had,
# RUN="chrt -r 1" keeps others away.
set -eu
cd "$(dirname "$0")"
: "${TRACES:?the folder of the traces}"
cargo build --quiet --release --manifest-path ../index_peers/Cargo.toml
peers() {
    ${RUN:-} "${CARGO_TARGET_DIR:-../index_peers/target}/release/peers" --json index-peers.json "$@"
}
rm -f index-peers.json
{
    peers --backends 8,32,128
    # Blocks of 16 tokens, as vLLM has them; and a large fleet.
    peers --backends 32 --split 32 --requests 15000 --rounds 1
    peers --backends 1000 --capacity 500 --rounds 1
} | tee index-peers.txt
