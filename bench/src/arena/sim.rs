//! A run: requests come, a router places them, engines work them off. Deterministic: the same workload, options, router
//! and seed give the same numbers on every machine. It reads no clock and no file.

use super::decode::Decoding;
use super::engine::{Engine, EngineOptions, Interrupted};
use super::hashing::{BlockSet, mixed};
use super::holders::Holders;
use super::job::{Job, Stage};
use super::mersenne::Mersenne;
use super::results::{Computed, Outcome, Sample};
use super::scene::{Router, Scene};
use super::source::Source;
use super::time::{Agenda, Event};
use super::workload::BLOCK_TOKENS;

/// A run in progress.
pub struct Sim<'r> {
    scene: Scene,
    router: Box<dyn Router + 'r>,
    source: Source<'r>,
    agenda: Agenda,
    jobs: Vec<Job>,
    free: Vec<usize>,
    /// Requests the router let wait.
    waiting: Vec<usize>,
    decoding: Vec<Decoding>,
    /// Blocks computed by anybody before: what could have been reused.
    seen: BlockSet,
    /// The same, of each engine.
    seen_here: BlockSet,
    /// What each request had computed for it.
    computed: Vec<Computed>,
    outcome: Outcome,
    attempts: u64,
}

/// A time an engine does not run: a failure, a restart, a late start or an early end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outage {
    /// Which engine.
    pub engine: usize,
    /// From when, in seconds.
    pub at_s: f64,
    /// Until when; `None` is for good.
    pub back_s: Option<f64>,
}

impl std::fmt::Debug for Sim<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("now_s", &self.scene.now_s).finish_non_exhaustive()
    }
}

impl<'r> Sim<'r> {
    /// A cold fleet with an engine for each of `options`, before the first request.
    pub fn new(
        options: &[EngineOptions],
        router: Box<dyn Router + 'r>,
        source: Source<'r>,
        seed: u32,
    ) -> Self {
        let engines = options.len();
        let engine = |(at, options): (usize, &EngineOptions)| Engine::new(at, *options);
        let scene = Scene {
            engines: options.iter().enumerate().map(engine).collect(),
            in_flight: vec![0; engines],
            pending: vec![0; engines],
            exact: router.reads_exact().then(|| Holders::new(engines)),
            up: vec![true; engines],
            random: Mersenne::new(seed),
            now_s: 0.0,
        };
        Self {
            scene,
            router,
            source,
            agenda: Agenda::default(),
            jobs: Vec::new(),
            free: Vec::new(),
            waiting: Vec::new(),
            decoding: (0..engines).map(|_| Decoding::default()).collect(),
            seen: BlockSet::default(),
            seen_here: BlockSet::default(),
            computed: Vec::new(),
            outcome: Outcome::default(),
            attempts: 0,
        }
    }

    /// An engine fails at some time, and comes back cold later, if at all.
    pub fn plan_outage(&mut self, outage: Outage) {
        let Outage { engine, at_s, back_s } = outage;
        if engine >= self.scene.len() {
            return;
        }
        self.agenda.plan(at_s, Event::Down(engine));
        if let Some(back_s) = back_s {
            self.agenda.plan(back_s, Event::Up(engine));
        }
    }

    /// Runs to the end, or until `until_s`.
    pub fn run(mut self, until_s: Option<f64>) -> Outcome {
        while let Some((at_s, job)) = self.source.first() {
            self.expect(at_s, job);
        }
        while let Some((at_s, event)) = self.agenda.pop() {
            if until_s.is_some_and(|until| at_s > until) {
                break;
            }
            self.scene.now_s = at_s;
            self.happen(event);
        }
        self.outcome.worked_s = self.scene.engines.iter().map(Engine::worked_s).collect();
        self.outcome.terms = self.router.terms();
        self.outcome
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival(key) => {
                self.jobs[key].arrived_s = self.scene.now_s;
                self.place(key);
            }
            Event::Prefilled { key, attempt } if self.stands(key, attempt) => self.prefilled(key),
            Event::Finished { key, attempt } if self.stands(key, attempt) => self.finished(key),
            Event::Prefilled { .. } | Event::Finished { .. } => {}
            Event::Down(engine) => self.down(engine),
            Event::Up(engine) => self.up(engine),
            Event::Decoded { engine, stamp } => self.decoded(engine, stamp),
        }
    }

    /// Whether a request is still where it was when the event was planned.
    fn stands(&self, key: usize, attempt: u64) -> bool {
        self.jobs[key].attempt == attempt
    }

    /// Takes a request in that comes at this time.
    fn expect(&mut self, at_s: f64, job: Job) {
        let key = match self.free.pop() {
            Some(key) => {
                self.jobs[key] = job;
                key
            }
            None => {
                self.jobs.push(job);
                self.computed.push(Computed::default());
                self.jobs.len() - 1
            }
        };
        self.agenda.plan(at_s, Event::Arrival(key));
    }

    /// Lets the router place a request, or keeps it waiting.
    fn place(&mut self, key: usize) {
        let any = self.scene.up.contains(&true);
        let job = &self.jobs[key];
        let route = if any { self.router.route(&mut self.scene, key, job) } else { None };
        let Some(route) = route else { return self.waiting.push(key) };
        self.attempts += 1;
        let job = &mut self.jobs[key];
        (job.stage, job.attempt) = (Stage::Placed, self.attempts);
        (job.engine, job.expected_tokens) = (route.engine, route.expected_tokens);
        self.scene.in_flight[route.engine] += 1;
        self.scene.pending[route.engine] += route.expected_tokens;
        self.scene.engines[route.engine].enqueue(key);
        self.interrupt(route.engine);
        self.start(route.engine);
    }

    /// Ends whoever is to give way at an engine, and puts it behind all that wait there.
    fn interrupt(&mut self, engine: usize) {
        let Some(key) = self.router.gives_way(&self.scene, engine) else { return };
        self.attempts += 1;
        let job = &mut self.jobs[key];
        job.attempt = self.attempts;
        let Scene { engines, exact, now_s, .. } = &mut self.scene;
        let ended = engines[engine].interrupt(key, job, exact.as_mut(), *now_s);
        let Some(Interrupted { undone_tokens, lost_tokens }) = ended else { return };
        job.interruptions += 1;
        let Computed { tokens, again, evicted } = &mut self.computed[key];
        *tokens -= undone_tokens;
        *again = (*again).min(*tokens) + lost_tokens;
        *evicted = (*evicted).min(*tokens) + lost_tokens;
    }

    fn start(&mut self, engine: usize) {
        let Scene { engines, exact, now_s, .. } = &mut self.scene;
        let started = engines[engine].start(&mut self.jobs, exact.as_mut(), *now_s);
        let Some(started) = started else { return };
        self.note_computed(started.job, started.uncached_tokens);
        let (key, attempt) = (started.job, self.jobs[started.job].attempt);
        self.agenda.plan(self.scene.now_s + started.takes_s, Event::Prefilled { key, attempt });
        self.pace(engine);
    }

    fn note_computed(&mut self, key: usize, uncached: u64) {
        let job = &self.jobs[key];
        if job.interruptions > 0 {
            // What it found and what it lacked was counted when it began.
            self.computed[key].tokens += uncached;
            return;
        }
        let here = |id: &u64| mixed(*id ^ mixed(job.engine as u64));
        let known = job.blocks.iter().take_while(|id| self.seen.contains(id)).count();
        let known_here =
            job.blocks.iter().take_while(|id| self.seen_here.contains(&here(id))).count();
        self.seen.extend(job.blocks.iter().copied());
        self.seen_here.extend(job.blocks.iter().map(here));
        let lacking = |known: usize| {
            let blocks = known.saturating_sub(job.cached_blocks) as u64;
            (blocks * BLOCK_TOKENS).min(uncached)
        };
        self.computed[key] =
            Computed { tokens: uncached, again: lacking(known), evicted: lacking(known_here) };
        self.outcome.hit_blocks += job.cached_blocks as u64;
        self.outcome.blocks += job.blocks.len() as u64;
    }

    fn prefilled(&mut self, key: usize) {
        let now_s = self.scene.now_s;
        let job = &mut self.jobs[key];
        let engine = job.engine;
        (job.ttft_s, job.stage) = (now_s - job.arrived_s, Stage::Decoding);
        self.scene.pending[engine] -= job.expected_tokens;
        self.scene.engines[engine].prefilled();
        self.router.prefilled(&self.scene, key, &self.jobs[key]);
        let Job { output_tokens: tokens, attempt, .. } = self.jobs[key];
        let options = self.scene.engines[engine].options();
        if options.is_steady() {
            let takes_s = tokens as f64 / options.decode_rate;
            self.agenda.plan(now_s + takes_s, Event::Finished { key, attempt });
        } else {
            self.decoding[engine].join(key, tokens, now_s);
            self.pace(engine);
        }
        self.start(engine);
        self.call_waiting();
    }

    fn finished(&mut self, key: usize) {
        let job = &self.jobs[key];
        let engine = job.engine;
        self.scene.in_flight[engine] -= 1;
        self.scene.engines[engine].finish(job);
        self.router.finished(&self.scene, key, job);
        self.outcome.samples.push(Sample {
            arrived_s: job.arrived_s,
            ttft_s: job.ttft_s,
            engine,
            computed: self.computed[key],
        });
        self.over(key);
        self.start(engine);
        self.call_waiting();
    }

    /// A request is over; whatever follows it in its session is to come.
    fn over(&mut self, key: usize) {
        if let Some((at_s, next)) = self.source.after(&self.jobs[key], self.scene.now_s) {
            self.expect(at_s, next);
        }
        let job = &mut self.jobs[key];
        (job.stage, job.attempt, job.blocks) = (Stage::Away, 0, [].into());
        self.free.push(key);
    }

    /// An engine fails: answers being written are cut off, and what had not begun is placed anew.
    fn down(&mut self, engine: usize) {
        self.scene.up[engine] = false;
        let on_it = |job: &Job| job.engine == engine && job.stage != Stage::Away;
        let mut keys: Vec<usize> =
            (0..self.jobs.len()).filter(|key| on_it(&self.jobs[*key])).collect();
        keys.sort_by(|a, b| self.jobs[*a].arrived_s.total_cmp(&self.jobs[*b].arrived_s));
        for key in &keys {
            self.router.lost(&self.scene, *key, &self.jobs[*key]);
        }
        (self.scene.in_flight[engine], self.scene.pending[engine]) = (0, 0);
        self.scene.engines[engine].restart(self.scene.exact.as_mut());
        self.decoding[engine].stop();
        self.router.down(&self.scene, engine);
        for key in keys {
            // It may have to wait now, and what was planned of it here must not happen.
            self.jobs[key].attempt = 0;
            match std::mem::take(&mut self.jobs[key].stage) {
                Stage::Placed => self.place(key),
                _ => {
                    self.outcome.lost += 1;
                    self.over(key);
                }
            }
        }
    }

    fn up(&mut self, engine: usize) {
        self.scene.up[engine] = true;
        self.router.up(engine);
        self.call_waiting();
    }

    /// Ends what an engine has decoded to its end.
    fn decoded(&mut self, engine: usize, stamp: u64) {
        if self.decoding[engine].stamp() != stamp {
            return;
        }
        for key in self.decoding[engine].ended(self.scene.now_s) {
            self.finished(key);
        }
        self.pace(engine);
    }

    /// Plans the next end of an engine whose rate changed.
    fn pace(&mut self, engine: usize) {
        let paced = &self.scene.engines[engine];
        if paced.options().is_steady() {
            return;
        }
        let decoding = &mut self.decoding[engine];
        let rate = paced.options().decode_rate(decoding.batch(), paced.is_prefilling());
        if let Some(at_s) = decoding.go_on(rate, self.scene.now_s) {
            let stamp = decoding.stamp();
            self.agenda.plan(at_s, Event::Decoded { engine, stamp });
        }
    }

    /// Offers the router those that wait, in its own order.
    fn call_waiting(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        self.router.rank(&self.scene, &self.jobs, &mut waiting);
        for key in waiting {
            self.place(key);
        }
    }
}
