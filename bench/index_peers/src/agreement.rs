//! Whether an index answers what is true: its overlaps against those of the exact caches, when these are full.

use crate::contenders::{Contender, filled, keys};
use crate::plan::Plan;
use crate::results::Agreement;

/// Compares the answers to the plan's first measured prompts.
pub(crate) fn agreement<C: Contender>(plan: &Plan) -> Agreement {
    let index = filled::<C>(plan);
    let mut reader = index.reader();
    let mut told = vec![0; plan.shape.backends];
    let mut agreement = Agreement::default();
    for (request, truth) in plan.measured().iter().zip(&plan.truth) {
        told.fill(0);
        let found = index.lookup(&mut reader, &keys::<C>(plan.prompt(request)));
        C::depths(&reader, &found, &mut told);
        agreement.prompts += 1;
        for (&told, &truth) in told.iter().zip(truth) {
            agreement.overlaps += u64::from(truth > 0);
            agreement.blocks += u64::from(truth);
            agreement.differing += u64::from(told != truth);
            agreement.missing_blocks += u64::from(truth.saturating_sub(told));
            agreement.surplus_blocks += u64::from(told.saturating_sub(truth));
        }
    }
    agreement
}
