//! One task a backend: it resolves, detects, probes, scrapes and lists, each at its own pace, and turns
//! what it sees into the backend's switches, limits and reports.
//!
//! It acts on its own backend alone. It never touches a request; what it changes are atomics that the
//! next decision reads.

mod numbers;
mod stillness;

use std::sync::Arc;
use std::time::Duration;

use config::{Kind, Level};
use index::breaker::State;
use index::limits::BREAKER_OPEN_FIRST_MS;
use index::{BackendId, Limits, Millis};
use tokio::sync::Notify;

use super::detect::detect;
use super::http_client::{Line, Target};
use super::pace::Pace;
use super::probe::{Change, Sign, Traffic, Vitals, probe};
use super::reading::{Reading, Signs};
use super::resolve;
use super::scrape::Scraper;
use super::{Progress, models};
use crate::clock;
use crate::insight::{BackendInsight, Insight, Report};
use crate::limits::{MODELS_INTERVAL_MS, REFUSED_PAUSE_MS, RESOLVE_INTERVAL_MS, TOGETHER_DIVISOR};
use crate::orphans::Orphans;
use crate::published::{EngineKind, Published, Upstream};
use stillness::{Look, Stillness, honest_ms};

/// When each thing is next due.
#[derive(Debug, Default)]
struct Due {
    resolve: Millis,
    probe: Millis,
    scrape: Millis,
    listing: Millis,
}

/// One backend's task.
pub(super) struct Watch {
    id: BackendId,
    shared: &'static Published,
    upstream: &'static Upstream,
    settings: &'static config::Backend,
    insight: Arc<Insight>,
    progress: Arc<Progress>,
    wake: Arc<Notify>,
    vitals: Vitals,
    scraper: Scraper,
    orphans: Orphans,
    signs: Signs,
    limits: Option<Limits>,
    asleep: bool,
    probed_at: Millis,
    /// When its breaker was last seen to open, or its pause to end.
    paused_at: Millis,
    /// The engine's own measure of what it has computed, while it can be read.
    progress_seen: Option<f64>,
    stillness: Stillness,
    due: Due,
    pace: Pace,
    line: &'static Line,
}

impl Watch {
    /// `None` for an id without a configured backend.
    pub(super) fn new(
        id: BackendId,
        shared: &'static Published,
        insight: &Arc<Insight>,
        progress: &Arc<Progress>,
    ) -> Option<Watch> {
        Some(Watch {
            id,
            shared,
            upstream: shared.upstream(id)?,
            settings: shared.config.backends.get(id.index())?,
            insight: Arc::clone(insight),
            progress: Arc::clone(progress),
            wake: progress.wake(id)?,
            vitals: Vitals::default(),
            scraper: Scraper::default(),
            orphans: Orphans::default(),
            signs: Signs::default(),
            limits: None,
            asleep: false,
            probed_at: Millis(0),
            paused_at: Millis(0),
            progress_seen: None,
            stillness: Stillness::default(),
            due: Due::default(),
            pace: Pace::new(
                id.index(),
                shared.upstreams.len(),
                shared.stats.len(),
                &shared.config.health,
            ),
            // As long as the process, like everything its task works on.
            line: Box::leak(Box::default()),
        })
    }

    /// Runs until the control thread ends.
    pub(super) async fn run(mut self) {
        self.begin();
        tokio::time::sleep(Duration::from_millis(self.pace.first_visit_ms())).await;
        self.step().await;
        self.progress.first_round_done();
        self.take_place();
        loop {
            let pause = self.next_due().since(now());
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(pause)) => {}
                () = self.wake.notified() => {}
            }
            self.step().await;
        }
    }

    /// What is known without asking anybody.
    fn begin(&mut self) {
        self.upstream.set_kind(match self.settings.kind {
            Kind::Auto => EngineKind::Unknown,
            Kind::Vllm => EngineKind::Vllm,
            Kind::Sglang => EngineKind::Sglang,
            Kind::LlamaCpp => EngineKind::Llamacpp,
            Kind::OpenAi => EngineKind::Openai,
        });
        if let Some(address) = resolve::literal(&self.settings.origin) {
            self.upstream.set_address(address);
        }
        let models = models::configured(&self.shared.config);
        let mine = models.into_iter().nth(self.id.index()).unwrap_or_default();
        self.report(|report| {
            report.told = mine.told;
            report.models = mine.models;
            report.up = true;
        });
        self.apply_limits(&Reading::default());
    }

    /// From the second visit on every backend has its own moment of the interval.
    fn take_place(&mut self) {
        if self.is_steady() {
            let rules = self.rules();
            self.due.probe = Millis(now().0 + self.pace.phase(rules.interval_ms));
            self.due.scrape = Millis(now().0 + self.pace.phase(rules.scrape_interval_ms));
        }
    }

    fn next_due(&self) -> Millis {
        let due = &self.due;
        let listing = if self.lists_models() { due.listing } else { due.probe };
        let resolve = if self.is_named() { due.resolve } else { due.probe };
        let breaker = self.trial_at().unwrap_or(due.probe);
        due.probe.min(due.scrape).min(listing).min(resolve).min(breaker)
    }

    /// Looks at what is known here, and asks what is due.
    async fn step(&mut self) {
        self.look_at_breaker();
        self.look_at_traffic();
        self.orphans.take_in(&self.upstream.orphans, now());
        if self.next_due() <= now() {
            let progress = Arc::clone(&self.progress);
            let _visit = progress.visit().await;
            self.visit().await;
        }
    }

    /// Asks everything that is due or soon will be, over one connection.
    async fn visit(&mut self) {
        let rules = self.rules();
        if self.is_named() && self.due.resolve <= now() {
            self.resolve().await;
        }
        if self.is_due(self.due.probe, rules.interval_ms) || self.breaker_is_due() {
            self.probe().await;
        }
        if self.is_due(self.due.listing, MODELS_INTERVAL_MS) && self.lists_models() {
            self.due.listing = self.after(MODELS_INTERVAL_MS);
            if self.is_steady() {
                self.list().await;
            }
        }
        if self.is_due(self.due.scrape, rules.scrape_interval_ms) {
            self.due.scrape = self.after(rules.scrape_interval_ms);
            // A sleeping engine's own numbers are what tells that it woke.
            if self.is_steady() || self.asleep {
                self.scrape().await;
            }
        }
        self.line.hang_up();
    }

    fn is_due(&self, at: Millis, interval_ms: u64) -> bool {
        at.0 <= now().0 + self.pace.stretched(interval_ms) / TOGETHER_DIVISOR
    }

    /// When an interval that begins now is over, in a fleet of this size.
    fn after(&self, interval_ms: u64) -> Millis {
        Millis(now().0 + self.spread(self.pace.stretched(interval_ms)))
    }

    /// Up and without a doubt: only then is more asked of it, so that a silent engine's timeouts do not
    /// add up between two probes.
    fn is_steady(&self) -> bool {
        self.vitals.up() && !self.vitals.undecided()
    }

    // --- Names ---

    fn is_named(&self) -> bool {
        resolve::literal(&self.settings.origin).is_none()
    }

    async fn resolve(&mut self) {
        let asked = now();
        let found = resolve::resolve(&self.settings.origin, self.timeout_ms()).await;
        self.due.resolve = Millis(now().0 + RESOLVE_INTERVAL_MS);
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                self.say(Level::Warn, format!("cannot resolve its name: {why}"));
                return self.report(|report| report.resolve.failed(now(), &why));
            }
        };
        self.report(|report| report.resolve.answered(asked, now()));
        let current = self.upstream.address();
        let Some(address) = resolve::choose(current, &found, !self.vitals.up()) else { return };
        if current == Some(address) {
            return;
        }
        self.upstream.set_address(address);
        if current.is_some() {
            self.say(Level::Info, format!("its name now means {address}"));
            self.restarted("its address changed");
        }
    }

    // --- Health ---

    /// Whether what clients were sent says all that a probe would.
    fn is_known_alive(&self) -> bool {
        let interval_ms = self.pace.stretched(self.rules().interval_ms);
        self.is_steady()
            && self.upstream.kind() != EngineKind::Unknown
            && matches!(self.upstream.breaker.look().state, State::Closed { .. })
            && self.upstream.was_alive_since(Millis(now().0.saturating_sub(interval_ms)))
    }

    async fn probe(&mut self) {
        let asked = now();
        let rules = self.rules();
        if self.is_known_alive() {
            self.report(|report| report.probe.needless(asked));
            self.probed_at = asked;
            self.due.probe = self.after(rules.interval_ms);
            return;
        }
        let traffic = self.traffic();
        let sign = match self.upstream.kind() {
            EngineKind::Unknown => self.detect().await,
            kind => probe(self.target(), kind).await,
        };
        let asleep = self.asleep && sign == Sign::Alive;
        let sign = if asleep {
            Sign::NotReady("it sleeps: its weights are unloaded".to_owned())
        } else {
            sign
        };
        self.probed_at = asked;
        self.take_sign(&sign, traffic, asked);
        // Silence took its time already.
        let quick = self.vitals.undecided() && !matches!(sign, Sign::Silent(_));
        self.due.probe = if quick {
            Millis(now().0 + self.spread(REFUSED_PAUSE_MS.min(rules.interval_ms)))
        } else {
            self.after(rules.interval_ms)
        };
    }

    async fn detect(&mut self) -> Sign {
        let found = detect(self.target()).await;
        if found.kind != EngineKind::Unknown {
            self.upstream.set_kind(found.kind);
            self.say(Level::Info, format!("it runs {}", found.kind.name()));
            self.due.scrape = Millis(0);
        }
        if let Some(models) = found.models.filter(|_| self.lists_models()) {
            self.take_models(models);
        }
        found.sign
    }

    fn take_sign(&mut self, sign: &Sign, traffic: Traffic, asked: Millis) {
        let complaint = sign.complaint();
        self.report(|report| match &complaint {
            None => {
                report.probe.answered(asked, now());
                report.answered = true;
            }
            Some(why) => report.probe.failed(now(), why),
        });
        match self.vitals.note(sign, traffic, self.rules()) {
            Some(Change::Down) => {
                if self.settings.kind == Kind::Auto && *sign == Sign::Refused {
                    // Whatever comes back there may be another engine.
                    self.upstream.set_kind(EngineKind::Unknown);
                }
                self.went_down(complaint.as_deref().unwrap_or_default());
                if matches!(sign, Sign::Silent(_) | Sign::Unreachable(_)) {
                    // Neither will it answer those who wait there, and no closed connection tells them.
                    self.upstream.give_up(now());
                }
            }
            Some(Change::Up { was_refused }) => self.came_up(was_refused),
            None => {}
        }
        if complaint.is_some() {
            // The name may mean another machine by now.
            self.due.resolve = self.due.resolve.min(now());
        }
        if self.breaker_is_due() {
            self.end_pause(*sign == Sign::Alive);
        }
    }

    fn went_down(&mut self, why: &str) {
        self.orphans.forget(&self.upstream.orphans);
        self.backend().set_healthy(false);
        self.report(|report| {
            report.up = false;
            report.since = now();
            report.down_reason = Some(why.to_owned());
        });
        self.say(Level::Warn, format!("it is down: {why}"));
        self.progress.changed();
    }

    fn came_up(&mut self, was_refused: bool) {
        if was_refused {
            self.restarted("nothing listened for a while");
        }
        self.backend().set_healthy(true);
        self.report(|report| {
            report.up = true;
            report.since = now();
            report.down_reason = None;
        });
        self.say(Level::Info, "it is up".to_owned());
        self.scraper.forget();
        self.due.listing = Millis(0);
        self.due.scrape = Millis(0);
        self.progress.changed();
    }

    // --- Traffic ---

    fn look(&self) -> Look {
        let backend = self.backend();
        Look {
            requests: backend.slots.in_flight().0,
            requests_max: backend.limits().requests_max,
            uncached_tokens: backend.load.uncached_tokens(),
            heard: self.upstream.heard(),
            progress: self.progress_seen,
            honest_ms: honest_ms(&backend.load),
            on_trial: matches!(self.upstream.breaker.look().state, State::HalfOpen { .. }),
        }
    }

    fn traffic(&mut self) -> Traffic {
        let look = self.look();
        let still_ms = self.stillness.note(&look, now());
        if self.upstream.was_alive_since(self.probed_at) {
            Traffic::Flowing
        } else if look.excuses(still_ms) {
            Traffic::Prefilling
        } else {
            Traffic::Quiet
        }
    }

    /// An engine that has requests and does nothing has failed them, though it never says so.
    fn look_at_traffic(&mut self) {
        let look = self.look();
        let still_ms = self.stillness.note(&look, now());
        let Some(after_ms) = self.rules().wedged_after_ms else { return };
        let open = self.upstream.breaker.look().state == State::Open;
        if open || !look.is_wedged(still_ms, after_ms) {
            return;
        }
        let seen = if look.progress.is_some() { ", and it computes nothing" } else { "" };
        let why = format!(
            "it is wedged: {} requests wait for {} tokens of prefill, not a byte came for {} s{seen}",
            look.requests,
            look.uncached_tokens,
            still_ms / 1_000,
        );
        self.stillness = Stillness::default();
        // The breaker first, so that none of those who wait there is sent there again.
        self.upstream.breaker.trip(self.backend(), now());
        self.upstream.give_up(now());
        self.say(Level::Warn, why.clone());
        self.report(|report| report.breaker_reason = Some(why));
        self.look_at_breaker();
    }

    fn look_at_breaker(&mut self) {
        let breaker = self.upstream.breaker.look();
        let opened = breaker.state == State::Open;
        let seen = self.report_returning(|report| {
            let seen = std::mem::replace(&mut report.breaker_epoch, breaker.epoch);
            if opened && seen != breaker.epoch {
                report.breaker_opened = report.breaker_opened.saturating_add(1);
            }
            if matches!(breaker.state, State::Closed { .. }) && seen != breaker.epoch {
                report.breaker_reason = None;
            }
            seen
        });
        match breaker.state {
            _ if seen == breaker.epoch => {}
            State::Open => {
                self.due.resolve = self.due.resolve.min(now());
                self.paused_at = now();
                let pause = self.upstream.breaker.due().map_or(0, |due| due.since(now()));
                self.say(Level::Warn, format!("its breaker opened, for {pause} ms"));
            }
            State::HalfOpen { .. } => {
                self.say(Level::Info, "its breaker lets a few requests try".to_owned());
            }
            State::Closed { .. } => {
                self.say(Level::Info, "its breaker closed: all who tried were served".to_owned());
            }
        }
    }

    fn breaker_is_due(&self) -> bool {
        self.trial_at().is_some_and(|due| due <= now())
    }

    /// When an open breaker's backend is to be tried: after its pause, and where nobody else is left, a first pause after
    /// it was last tried, unless it asked for longer than our own pause itself.
    fn trial_at(&self) -> Option<Millis> {
        let due = self.upstream.breaker.due()?;
        let soon = Millis(self.paused_at.0 + BREAKER_OPEN_FIRST_MS);
        let ours = soon.0 + self.upstream.breaker.look().pause_ms();
        let early = due > soon && due.0 <= ours && self.shared.is_last_hope(self.id);
        Some(if early { soon } else { due })
    }

    /// An open breaker's pause is over. An engine that answers is tried with requests; to another none is sent.
    fn end_pause(&mut self, alive: bool) {
        self.paused_at = now();
        if alive {
            self.upstream.breaker.half_open(self.backend());
            self.look_at_breaker();
        } else {
            self.upstream.breaker.stay_open(self.backend(), now());
        }
    }

    // --- Small things ---

    fn target(&self) -> Target<'static> {
        Target {
            address: self.upstream.address(),
            authority: &self.upstream.authority,
            timeout_ms: self.timeout_ms(),
            line: self.line,
        }
    }

    fn rules(&self) -> &'static config::Health {
        &self.shared.config.health
    }

    fn timeout_ms(&self) -> u64 {
        self.rules().timeout_ms
    }

    fn backend(&self) -> &'static index::Backend {
        self.shared.fleet.backend(self.id)
    }

    fn mine(&self) -> Option<&BackendInsight> {
        self.insight.backend(self.id)
    }

    fn report(&self, change: impl FnOnce(&mut Report)) {
        if let Some(mine) = self.mine() {
            mine.report(change);
        }
    }

    fn report_returning<T: Default>(&self, change: impl FnOnce(&mut Report) -> T) -> T {
        self.mine().map(|mine| mine.report(change)).unwrap_or_default()
    }

    fn say(&self, level: Level, message: String) {
        self.insight.journal.note(level, Some(&self.upstream.name), message);
    }

    /// A pause up to a tenth shorter, different for each backend, so that a fleet is not asked in step.
    fn spread(&self, pause_ms: u64) -> u64 {
        let salt = u64::from(self.id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ now().0;
        let share = salt.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 48;
        pause_ms.saturating_sub(pause_ms.saturating_mul(share) / (10 << 16))
    }
}

fn now() -> Millis {
    clock::now().millis()
}
