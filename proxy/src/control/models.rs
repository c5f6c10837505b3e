//! Which models there are: read from each engine's list, joined over the fleet, published as routes.
//!
//! Pools hold every backend of a model, healthy or not, so that a model whose backends are all down is
//! "not now" and never "unknown". The lists that clients read hold what can be served now.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use config::Config;
use index::{BackendId, BackendSet};
use serde_json::{Value, json};

use super::http_client::Reply;
use crate::clock;
use crate::insight::Model;
use crate::limits::{MODEL_ID_BYTES_MAX, MODELS_MAX, MODELS_PER_BACKEND_MAX};
use crate::published::{Learned, Pool, Routes};

/// What one backend contributes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    /// Its models.
    pub models: Vec<Model>,
    /// Whether it can serve them now.
    pub up: bool,
    /// Whether it has said what its models are.
    pub told: bool,
}

/// Reads a reply to `GET /v1/models`; `None` when it is no model list.
pub fn listed(reply: &Reply) -> Option<Vec<Model>> {
    if !reply.is_ok() {
        return None;
    }
    let value: Value = serde_json::from_slice(&reply.body).ok()?;
    let mut models: Vec<Model> = Vec::new();
    for entry in value.get("data")?.as_array()? {
        let created = entry.get("created").and_then(Value::as_f64);
        let created = created.and_then(super::metrics_text::count).unwrap_or(0);
        let id = entry.get("id").and_then(Value::as_str);
        models.extend(id.and_then(|id| model(id, created, false)));
        let aliases = entry.get("aliases").and_then(Value::as_array).into_iter().flatten();
        models.extend(aliases.filter_map(Value::as_str).filter_map(|id| model(id, created, true)));
    }
    let mut known = std::collections::HashSet::new();
    models.retain(|model| known.insert(model.id.clone()));
    models.truncate(MODELS_PER_BACKEND_MAX);
    Some(models)
}

fn model(id: &str, created: u64, alias: bool) -> Option<Model> {
    let fits =
        !id.is_empty() && id.len() <= MODEL_ID_BYTES_MAX && !id.chars().any(char::is_control);
    fits.then(|| Model { id: id.to_owned(), created, alias })
}

/// What the configuration says by itself, before any engine has answered.
pub fn configured(config: &Config) -> Vec<Offer> {
    let offer = |backend: &config::Backend| Offer {
        models: backend.models.iter().filter_map(|id| model(id, 0, false)).collect(),
        up: true,
        told: !backend.models.is_empty(),
    };
    config.backends.iter().map(offer).collect()
}

/// Keeps what was learned of a model's tokens from one publication to the next.
#[derive(Debug, Default)]
pub struct Catalog {
    learned: HashMap<Box<str>, Arc<Learned>>,
    all: Arc<Learned>,
    created: HashMap<Box<str>, u64>,
}

impl Catalog {
    /// A catalog that goes on with what `routes` learned so far.
    pub fn continuing(routes: &Routes) -> Catalog {
        let learned = routes.pools.iter().map(|(id, pool)| (id.clone(), Arc::clone(&pool.learned)));
        Catalog {
            learned: learned.collect(),
            all: Arc::clone(&routes.all.learned),
            created: HashMap::new(),
        }
    }

    /// Routes of these offers, one a backend in the order of ids.
    pub fn routes(&mut self, offers: &[Offer]) -> Routes {
        let mut members: BTreeMap<&str, BackendSet> = BTreeMap::new();
        let mut shown: BTreeMap<&str, u64> = BTreeMap::new();
        for (id, offer) in ids().zip(offers) {
            for model in &offer.models {
                if !members.contains_key(model.id.as_str()) && members.len() >= MODELS_MAX {
                    continue;
                }
                members.entry(&model.id).or_default().insert(id);
                if offer.up && !model.alias {
                    // Some engines say "now" each time; the first answer stands, so that lists keep still.
                    let first =
                        self.created.entry(model.id.as_str().into()).or_insert(model.created);
                    shown.insert(&model.id, *first);
                }
            }
        }
        self.learned.retain(|id, _| members.contains_key(&**id));
        self.created.retain(|id, _| members.contains_key(&**id));
        let models_openai = openai_list(&shown);
        let models_anthropic = anthropic_list(&shown);
        let pools =
            members.into_iter().map(|(id, backends)| (Box::from(id), self.pool(id, backends)));
        Routes {
            pools: pools.collect(),
            all: Pool {
                model: "".into(),
                backends: ids().take(offers.len()).collect(),
                learned: Arc::clone(&self.all),
            },
            complete: is_complete(offers),
            models_openai,
            models_anthropic,
        }
    }

    fn pool(&mut self, id: &str, backends: BackendSet) -> Pool {
        let learned = Arc::clone(self.learned.entry(id.into()).or_default());
        Pool { model: id.into(), backends, learned }
    }
}

/// Whether an unknown name is known to be unknown: somebody has told, and everybody who is up. While nobody
/// has, every name may be served once a backend is back, and the answer is that none is up.
fn is_complete(offers: &[Offer]) -> bool {
    offers.iter().any(|offer| offer.told) && offers.iter().all(|offer| offer.told || !offer.up)
}

/// Whether two publications route and list alike, so that the second is not needed.
pub fn same(left: &Routes, right: &Routes) -> bool {
    left.models_openai == right.models_openai
        && left.complete == right.complete
        && left.all.backends == right.all.backends
        && left.pools.len() == right.pools.len()
        && left.pools.iter().all(|(id, pool)| {
            right.pools.get(id).is_some_and(|other| other.backends == pool.backends)
        })
}

fn ids() -> impl Iterator<Item = BackendId> {
    (0..=u16::MAX).map(BackendId)
}

fn openai_list(models: &BTreeMap<&str, u64>) -> Vec<u8> {
    let entry = |(id, created): (&&str, &u64)| json!({"id": id, "object": "model", "created": created, "owned_by": "shearwater"});
    let data: Vec<Value> = models.iter().map(entry).collect();
    json!({"object": "list", "data": data}).to_string().into_bytes()
}

/// Anthropic's shape, whole in one page.
fn anthropic_list(models: &BTreeMap<&str, u64>) -> Vec<u8> {
    let entry = |(id, created): (&&str, &u64)| {
        let date = clock::rfc3339(created.saturating_mul(1000));
        json!({"type": "model", "id": id, "display_name": id, "created_at": date})
    };
    let data: Vec<Value> = models.iter().map(entry).collect();
    let (first, last) = (models.keys().next(), models.keys().next_back());
    json!({"data": data, "has_more": false, "first_id": first, "last_id": last})
        .to_string()
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(body: &str) -> Reply {
        Reply { status: 200, headers: hyper::HeaderMap::new(), body: body.as_bytes().to_vec() }
    }

    fn offer(up: bool, models: &[&str]) -> Offer {
        let models = models.iter().filter_map(|id| model(id, 7, false)).collect();
        Offer { models, up, told: true }
    }

    #[test]
    fn lists_are_read_with_aliases_and_without_repetition() {
        let body = r#"{"object":"list","data":[{"id":"a","aliases":["a","b"],"created":5},{"id":"a"},{"id":3},{}]}"#;
        let models = listed(&reply(body)).unwrap();
        let names: Vec<_> =
            models.iter().map(|model| (model.id.as_str(), model.alias, model.created)).collect();
        assert_eq!(names, [("a", false, 5), ("b", true, 5)]);
    }

    #[test]
    fn what_is_no_list_is_no_answer() {
        for body in ["", "{}", "[]", r#"{"data":{}}"#] {
            assert_eq!(listed(&reply(body)), None, "{body}");
        }
        assert_eq!(listed(&Reply { status: 401, ..reply(r#"{"data":[]}"#) }), None);
    }

    #[test]
    fn a_pool_keeps_its_backends_while_the_list_shows_what_can_be_served() {
        let routes = Catalog::default().routes(&[offer(true, &["a"]), offer(false, &["a", "b"])]);
        let pool = |id: &str| routes.pools.get(id).map(|pool| pool.backends.len());
        assert_eq!((pool("a"), pool("b"), pool("c")), (Some(2), Some(1), None));
        assert_eq!(routes.all.backends.len(), 2);
        let list: Value = serde_json::from_slice(&routes.models_openai).unwrap();
        assert_eq!(
            list["data"],
            json!([{"id":"a","object":"model","created":7,"owned_by":"shearwater"}])
        );
        let list: Value = serde_json::from_slice(&routes.models_anthropic).unwrap();
        assert_eq!(list["data"][0]["created_at"], "1970-01-01T00:00:07.000Z");
        assert_eq!((&list["first_id"], &list["has_more"]), (&json!("a"), &json!(false)));
    }

    #[test]
    fn a_name_is_unknown_only_once_somebody_has_told_the_names() {
        let silent = |up| Offer { told: false, ..offer(up, &[]) };
        let complete = |offers: &[Offer]| Catalog::default().routes(offers).complete;
        assert!(!complete(&[silent(false), silent(false)]), "nobody is up");
        assert!(!complete(&[silent(true), offer(true, &["a"])]), "one may still tell");
        assert!(complete(&[silent(false), offer(true, &["a"])]));
    }

    #[test]
    fn an_empty_fleet_lists_nothing_in_both_shapes() {
        let routes = Catalog::default().routes(&[]);
        assert_eq!(routes.models_openai, br#"{"object":"list","data":[]}"#);
        let list: Value = serde_json::from_slice(&routes.models_anthropic).unwrap();
        assert_eq!((&list["first_id"], &list["data"]), (&Value::Null, &json!([])));
    }

    #[test]
    fn what_was_learned_outlives_a_publication() {
        let mut catalog = Catalog::default();
        let first = catalog.routes(&[offer(true, &["a"])]);
        let second = catalog.routes(&[offer(true, &["a", "b"])]);
        let learned =
            |routes: &Routes| routes.pools.get("a").map(|pool| Arc::clone(&pool.learned)).unwrap();
        assert!(Arc::ptr_eq(&learned(&first), &learned(&second)));
        assert!(!same(&first, &second));
        let mut going_on = Catalog::continuing(&second);
        let third = going_on.routes(&[offer(true, &["a", "b"])]);
        assert!(Arc::ptr_eq(&learned(&first), &learned(&third)) && same(&second, &third));
    }
}
