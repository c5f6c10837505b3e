//! Client workloads: conversations, open-loop arrivals, trace replay.
