//! Where a body is mended, if an operator asked for it: places and edits found among the spans that reading made anyway.
//!
//! Every repair is off by default, and none changes a byte beyond its own. What is taken out here is what the canonical
//! prompt leaves out too, so the fingerprint of a body is that of what is sent. A member that an engine may read in
//! another way than it stands (a number in quotes, a name with escapes, one standing twice) is mended in that way too.

use std::ops::Range;

use super::fields::{Fields, Name};
use super::json::{Kind, Value};
use super::messages::is_billing;
use crate::api::Api;
use crate::edits::Edit;

/// Which repairs are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Takes billing blocks out of `system` of Messages.
    pub drop_billing_block: bool,
    /// Asks for `usage` in streams of chat and completions.
    pub include_usage: bool,
    /// Most tokens a reply may be asked for.
    pub max_tokens_cap: Option<u64>,
    /// Finds the places where llama.cpp's slot is named.
    pub id_slot: bool,
}

impl Wanted {
    /// Whether there is anything to look for.
    pub fn any(&self) -> bool {
        *self != Wanted::default()
    }
}

/// What was found to mend in one body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Edits wherever the request goes.
    pub always: Vec<Edit>,
    /// Edits that ask for `usage`, for engines that do not tell it otherwise; empty if the client asked.
    pub usage: Vec<Edit>,
    /// Where a slot can be named.
    pub id_slot: SlotPlaces,
}

/// Where llama.cpp's `id_slot` stands in a body, or could.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotPlaces {
    /// Values of the members of that name.
    named: Vec<Range<usize>>,
    /// Where a member can be put in front of the others; `None` if none may be.
    front: Option<usize>,
    /// The request takes one slot: it is one prompt with one reply.
    pub single: bool,
}

impl SlotPlaces {
    /// Whether a slot may be named: by a request that takes one, on an API that reads the name.
    pub fn may_name(&self) -> bool {
        self.front.is_some()
    }

    /// The edits that name `slot`, or that leave the choice to the engine where a client chose.
    pub fn edits(&self, slot: Option<u32>) -> Vec<Edit> {
        let number = slot.map_or_else(|| "-1".to_owned(), |slot| slot.to_string());
        match (self.front, slot) {
            (Some(front), Some(_)) if self.named.is_empty() => {
                vec![Edit::insert(front, format!("\"id_slot\":{number},"))]
            }
            _ => {
                let replaced = |range: &Range<usize>| Edit::replace(range.clone(), number.clone());
                self.named.iter().map(replaced).collect()
            }
        }
    }
}

/// A body whose members were found, and what its reading said of it.
pub(super) struct Mending<'f, 't, 'a> {
    pub(super) api: Api,
    pub(super) root: Value<'t, 'a>,
    pub(super) fields: &'f Fields<'t, 'a>,
    /// One prompt, and one reply to it.
    pub(super) single: bool,
}

impl Mending<'_, '_, '_> {
    /// Everything that is wanted and due.
    pub(super) fn find(&self, wanted: &Wanted) -> Repairs {
        let mut repairs = Repairs::default();
        if wanted.drop_billing_block && matches!(self.api, Api::Messages | Api::CountTokens) {
            self.drop_billing(&mut repairs.always);
        }
        if let Some(cap) = wanted.max_tokens_cap.filter(|_| self.api.fills_cache()) {
            self.cap_tokens(cap, &mut repairs.always);
        }
        let streams = matches!(self.api, Api::ChatCompletions | Api::Completions);
        if wanted.include_usage && streams && self.fields.is_true(Name::Stream) {
            self.ask_for_usage(&mut repairs.usage);
        }
        if wanted.id_slot {
            repairs.id_slot = self.slot_places();
        }
        repairs
    }

    /// Where a member may be put in front of the others; an object without members is left alone.
    fn front(&self) -> Option<usize> {
        (!self.root.is_empty()).then_some(self.root.start() + 1)
    }

    /// Takes runs of blocks out together with the commas that separated them from the rest.
    fn drop_billing(&self, edits: &mut Vec<Edit>) {
        let Some(system) = self.fields.get(Name::System) else { return };
        let (mut kept_to, mut run): (Option<usize>, Option<Range<usize>>) = (None, None);
        for block in system.items() {
            let span = span(block);
            if is_billing(block) {
                run = Some(run.map_or(span.start, |run| run.start)..span.end);
            } else {
                edits.extend(run.take().map(|run| Edit::remove(run.start..span.start)));
                kept_to = Some(span.end);
            }
        }
        edits.extend(run.map(|run| Edit::remove(kept_to.unwrap_or(run.start)..run.end)));
    }

    /// Lowers what is above the cap or means "no bound". Where the API has no bound unless one is given, it gets one.
    fn cap_tokens(&self, cap: u64, edits: &mut Vec<Edit>) {
        let is_above =
            |value: Value<'_, '_>| number(value).is_some_and(|n| n < 0.0 || n > as_f64(cap));
        let mut lower = |value| edits.push(Edit::replace(span(value), cap.to_string()));
        let given: Vec<_> = Name::BOUNDS.iter().filter_map(|name| self.fields.get(*name)).collect();
        given.iter().copied().filter(|value| is_above(*value)).for_each(&mut lower);
        let sampling = self.fields.get(Name::SamplingParams);
        let own = sampling.into_iter().flat_map(|sampling| sampling.members());
        own.filter(|(key, value)| key.is("max_new_tokens") && is_above(*value))
            .for_each(|(_, value)| lower(value));
        let Some(name) = unbounded(self.api).filter(|_| given.is_empty()) else { return };
        match self.fields.get_or_null(name) {
            Some(null) => lower(null),
            None => {
                let member = || format!("\"{}\":{cap},", name.spelling());
                edits.extend(self.front().map(|front| Edit::insert(front, member())));
            }
        }
    }

    fn ask_for_usage(&self, edits: &mut Vec<Edit>) {
        if self.fields.include_usage() {
            return;
        }
        const OPTIONS: &str = "{\"include_usage\":true}";
        let Some(options) = self.fields.get_or_null(Name::StreamOptions) else {
            let member = format!("\"stream_options\":{OPTIONS},");
            return edits.extend(self.front().map(|front| Edit::insert(front, member)));
        };
        match options.kind() {
            Kind::Null => edits.push(Edit::replace(span(options), OPTIONS)),
            Kind::Object => add_usage(options, edits),
            // The engine will say what it thinks of it.
            _ => {}
        }
    }

    fn slot_places(&self) -> SlotPlaces {
        if !self.api.names_slot() {
            return SlotPlaces { single: self.single, ..SlotPlaces::default() };
        }
        let named = self.root.members().filter(|(key, _)| key.is("id_slot"));
        let named = named.map(|(_, value)| span(value)).collect();
        SlotPlaces { named, front: self.front().filter(|_| self.single), single: self.single }
    }
}

/// Options that do not ask become options that do, under every spelling of the name.
fn add_usage(options: Value<'_, '_>, edits: &mut Vec<Edit>) {
    let before = edits.len();
    let told = options.members().filter(|(key, _)| key.is("include_usage"));
    edits.extend(told.map(|(_, value)| Edit::replace(span(value), "true")));
    if edits.len() == before {
        let comma = if options.is_empty() { "" } else { "," };
        let member = format!("\"include_usage\":true{comma}");
        edits.push(Edit::insert(options.start() + 1, member));
    }
}

/// The name by which a request of this API is given a bound where it has none. Text completions have a small bound of
/// their own on most engines, Messages must name one, and `/generate` has a default.
fn unbounded(api: Api) -> Option<Name> {
    match api {
        Api::ChatCompletions => Some(Name::MaxTokens),
        Api::Responses => Some(Name::MaxOutputTokens),
        Api::LlamaCompletion => Some(Name::NPredict),
        _ => None,
    }
}

/// The bytes of a value, a string's with its quotes.
fn span(value: Value<'_, '_>) -> Range<usize> {
    let quote = usize::from(value.kind() == Kind::Text);
    value.start().saturating_sub(quote)..value.end() + quote
}

/// A number, also one that an engine would read out of a string; one beyond all bounds is infinite.
fn number(value: Value<'_, '_>) -> Option<f64> {
    let decoded = match value.kind() {
        Kind::Number => value.raw().into(),
        Kind::Text => value.text()?.decode(),
        _ => return None,
    };
    std::str::from_utf8(&decoded).ok()?.trim().parse().ok()
}

// A cap is far below 2^52.
#[allow(clippy::cast_precision_loss)]
fn as_f64(cap: u64) -> f64 {
    cap as f64
}
