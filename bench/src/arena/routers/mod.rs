//! Routers by name: the product's own policies, models of peers, the reference simulator's candidates, and bounds.

pub mod bounded;
pub mod dynamo;
pub mod greedy;
pub mod llmd;
pub mod plain;
pub mod product;
pub mod replicas;
pub mod ring;
pub mod sglang;

use index::{Fleet, PolicyKind};

use super::ArenaError;
use super::scene::Router;
use product::{Product, ProductOptions};

/// A router to run, by the name its rows carry.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// The name of the policy that a configuration asks for.
pub const CONFIGURED: &str = "configured";

/// What a router is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// One of the product's policies, run by the product's own code.
    Product(PolicyKind),
    /// Fewest prompt tokens outstanding, caches ignored.
    LeastTokens,
    /// Consistent hashing of the first blocks, with bounded load or not.
    Ring {
        /// Leading blocks hashed.
        blocks: usize,
        /// No engine gets more than this times the mean load.
        bound: Option<f64>,
    },
    /// SGLang's and SMG's `cache_aware`.
    Sglang(sglang::Settings),
    /// llm-d's weighted scorers.
    Llmd(llmd::Settings),
    /// Dynamo's KV router, with this overlap weight.
    Dynamo(f64),
    /// Pending work plus weighted own uncached tokens, on guessed or exact contents.
    Greedy(greedy::Settings),
    /// An infinite cache shared by all engines behind one queue; nothing can reach it.
    Floor,
}

impl Kind {
    /// Whether it is one of the peers' shipped defaults, which the default policy is measured against.
    pub fn is_peer(&self) -> bool {
        matches!(self, Kind::Sglang(_) | Kind::Llmd(_) | Kind::Dynamo(_) | Kind::LeastTokens)
            || matches!(self, Kind::Ring { .. })
    }

    /// Makes the router; the product has a proxy for each of `fleets`. The floor is no router.
    pub fn build<'f>(
        &self,
        capacities: &[usize],
        fleets: &'f [Fleet],
        options: ProductOptions,
    ) -> Option<Box<dyn Router + 'f>> {
        Some(match *self {
            Kind::Product(policy) => product(policy, fleets, capacities, options),
            Kind::LeastTokens => Box::new(plain::LeastTokens),
            Kind::Ring { blocks, bound } => {
                Box::new(ring::Ring::new(capacities.len(), blocks, bound))
            }
            Kind::Sglang(settings) => Box::new(sglang::CacheAware::new(capacities.len(), settings)),
            Kind::Llmd(settings) => Box::new(llmd::Scorers::new(capacities, settings)),
            Kind::Dynamo(weight) => Box::new(dynamo::Dynamo::new(capacities.len(), weight)),
            Kind::Greedy(settings) => Box::new(greedy::Greedy::new(capacities, settings)),
            Kind::Floor => return None,
        })
    }
}

/// The product: one proxy, or several side by side.
fn product<'f>(
    policy: PolicyKind,
    fleets: &'f [Fleet],
    capacities: &[usize],
    options: ProductOptions,
) -> Box<dyn Router + 'f> {
    let mut proxies: Vec<Product<'f>> =
        fleets.iter().map(|fleet| Product::new(policy, fleet, capacities, options)).collect();
    match (proxies.pop(), proxies.is_empty()) {
        (Some(one), true) => Box::new(one),
        (last, _) => {
            proxies.extend(last);
            Box::new(replicas::Replicas::new(proxies))
        }
    }
}

/// Every router there is, in the order tables show them.
pub fn all() -> Vec<Entry> {
    let own = PolicyKind::ALL.map(|policy| (policy.name().to_owned(), Kind::Product(policy)));
    let greedy = |a, exact, request_tokens| {
        Kind::Greedy(greedy::Settings { a, exact, request_tokens, adaptive: None })
    };
    let adaptive = Some(greedy::Adaptive { branches: 16 });
    let reference = greedy::Settings { a: 8.0, exact: false, request_tokens: 300.0, adaptive };
    let others = [
        ("least-tokens", Kind::LeastTokens),
        ("chash-8-bl1.25", Kind::Ring { blocks: 8, bound: Some(1.25) }),
        ("sglang-cli", Kind::Sglang(sglang::Settings::COMMAND_LINE)),
        ("sglang-lib", Kind::Sglang(sglang::Settings::LIBRARY)),
        ("llm-d", Kind::Llmd(llmd::Settings::CHART)),
        ("llm-d-all", Kind::Llmd(llmd::Settings { blocks_max: None, ..llmd::Settings::CHART })),
        ("dynamo-1", Kind::Dynamo(1.0)),
        ("dynamo-2", Kind::Dynamo(2.0)),
        ("dynamo-16", Kind::Dynamo(16.0)),
        ("mirror-4", greedy(4.0, false, 300.0)),
        ("mirror-8", greedy(8.0, false, 300.0)),
        ("reference", Kind::Greedy(reference)),
        ("oracle-1", greedy(1.0, true, 0.0)),
        ("oracle-4", greedy(4.0, true, 0.0)),
        ("oracle-8", greedy(8.0, true, 0.0)),
        ("floor", Kind::Floor),
    ];
    let others = others.into_iter().map(|(name, kind)| (name.to_owned(), kind));
    own.into_iter().chain(others).map(|(name, kind)| Entry { name, kind }).collect()
}

/// The routers of a comma-separated list; `all` are all, `peers` the models of peers.
pub fn named(list: &str) -> Result<Vec<Entry>, ArenaError> {
    let mut chosen: Vec<Entry> = Vec::new();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let wanted = |entry: &Entry| match name {
            "all" => true,
            "peers" => entry.kind.is_peer(),
            _ => entry.name == name,
        };
        let found: Vec<Entry> = all().into_iter().filter(wanted).collect();
        if found.is_empty() {
            return Err(ArenaError::Policy(name.to_owned()));
        }
        chosen.extend(found);
    }
    Ok(chosen)
}
