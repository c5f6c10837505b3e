//! The dry run: the decision a request would get, made by the same code as a real one, with nothing
//! reserved, sent or recorded.

use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};
use index::{BackendSet, IndexReader, Picker};

use crate::admin::{DryRun, DryRunRefused, DryRunRequest, Explain};
use crate::answer::Situation;
use crate::api::{Api, Dialect};
use crate::clock;
use crate::plan::{self, Planned, Views};
use crate::prompt::Scratch;
use crate::published::{Published, Routes};

/// Its own view of everything a shard looks at.
pub struct Rehearsal {
    shared: &'static Published,
    routes: Cache<&'static ArcSwap<Routes>, Arc<Routes>>,
    reader: IndexReader,
    picker: Picker,
    scratch: Scratch,
}

impl std::fmt::Debug for Rehearsal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rehearsal").finish_non_exhaustive()
    }
}

impl Rehearsal {
    /// A view of what is published.
    pub fn new(shared: &'static Published) -> Rehearsal {
        Rehearsal {
            shared,
            routes: Cache::new(&shared.routes),
            reader: shared.index.reader(),
            picker: Picker::new(crate::start::policy_of(&shared.config)),
            scratch: Scratch::default(),
        }
    }
}

impl Explain for Rehearsal {
    fn explain(&mut self, request: DryRunRequest<'_>) -> Result<DryRun, DryRunRefused> {
        let api = Api::of(b"POST", request.path.as_bytes());
        let get = |name: &str| request.headers.get(name).map(axum::http::HeaderValue::as_bytes);
        let routes = self.routes.load();
        let mut views = Views { shared: self.shared, routes, scratch: &mut self.scratch };
        let plan = match plan::plan(&mut views, api, &get, request.body) {
            Planned::Forward(plan) => plan,
            Planned::Answer(situation) => return Err(refused(situation, api.dialect())),
        };
        let Some(pool) = self.shared.pool_of(routes, plan.model.as_deref()) else {
            return Err(refused(Situation::UnknownModel, api.dialect()));
        };
        let nothing = BackendSet::default();
        // Ties fall differently each time; any constant will do for one answer.
        let ask = plan::ask(self.shared, &plan, pool, &nothing, 0, clock::now().millis(), 1);
        let decision = self.picker.explain(&self.shared.fleet, self.reader.load(), &ask);
        Ok(DryRun {
            api,
            model: plan.model.as_deref().map(str::to_owned),
            canonical_bytes: plan.canonical_bytes,
            blocks: u32::try_from(plan.blocks.len()).unwrap_or(u32::MAX),
            prompt_tokens: ask.prompt_tokens,
            conversation: plan.conversation,
            decision,
        })
    }
}

fn refused(situation: Situation, dialect: Dialect) -> DryRunRefused {
    let row = situation.row();
    DryRunRefused { status: row.status(dialect), reason: row.message.to_owned() }
}
