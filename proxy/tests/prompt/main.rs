//! Prompts as clients spell them: what is equal, how conversations grow, what is refused.

mod canonical;
mod corpus;
mod fields;
mod growth;
mod repairs;
mod support;
