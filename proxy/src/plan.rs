//! What a request's body means for routing: its model, its prompt's fingerprint, whose conversation it is.
use crate::answer::Situation;
use crate::api::Api;
use crate::http::RequestHead;
use crate::place::Plan;
use crate::shard::Shard;

/// What to do with a request.
#[derive(Debug)]
pub enum Planned {
    /// Send it to a backend.
    Forward(Plan),
    /// Answer it.
    Answer(Situation),
}

pub fn plan(_shard: &Shard, api: Api, _head: &RequestHead, _body: &[u8]) -> Planned {
    Planned::Forward(Plan {
        reserves: false && api.reserves_slot(),
        output_tokens: 100,
        ..Plan::default()
    })
}
