//! Putting a proxy together from its configuration, and taking it down again.
//!
//! The demo, the tests and the command line all start it here. What is shared by the threads is made
//! once and lives as long as the process: a reservation held by a stream must never outlive its fleet.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use config::{Config, Level, Policy};
use index::{BackendId, FingerprintKey, Fleet, FleetConfig, PolicyKind};

use crate::control::reading::Reading;
use crate::control::{Stock, models};
use crate::limits::{DESCRIPTORS_PER_SESSION, TAKEOVER_READY_MS, TICK_MS};
use crate::listening::Listening;
use crate::notify::Notify;
use crate::pins::Pins;
use crate::published::{Parts, Phase, Published, Sockets, Upstream};
use crate::rehearse::Rehearsal;
use crate::takeover::handover::Inherited;
use crate::takeover::{Door, Taking};
use crate::{clock, control, descriptors, learn, notify, shard};

/// Why a proxy could not start.
#[derive(Debug)]
pub struct StartError {
    doing: String,
    source: io::Error,
}

impl StartError {
    fn new(doing: impl Into<String>, source: io::Error) -> StartError {
        StartError { doing: doing.into(), source }
    }

    /// An address that cannot be had.
    pub(crate) fn listening(what: &str, address: SocketAddr, source: io::Error) -> StartError {
        StartError::new(format!("listen on {what}{address}"), source)
    }
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot {}: {}", self.doing, self.source)
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// A running proxy.
#[derive(Debug)]
pub struct Running {
    /// What its threads share.
    pub shared: &'static Published,
    /// Where it listens, with the ports the system chose.
    pub listen: Vec<SocketAddr>,
    /// Where its admin address is.
    pub admin: SocketAddr,
    /// The I/O driver of each shard, in words.
    pub drivers: Vec<&'static str>,
    shards: Vec<JoinHandle<io::Result<()>>>,
    control: control::Handle,
    learn: learn::Handle,
    door: Option<Door>,
}

/// What to do besides serving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartOptions {
    /// Drain on SIGTERM and SIGINT. One proxy of a process may ask for it.
    pub take_signals: bool,
    /// Take the listening sockets over from the process behind the configuration's `takeover_socket`.
    pub take_over: bool,
}

/// Starts a proxy and returns once it listens; a successor, once the sockets are its own.
///
/// # Errors
/// When an address cannot be bound, a thread or a driver cannot be made, or no random key can be had; when
/// there is nobody to take over from, or this process is not ready in time.
pub fn start(config: Config, options: StartOptions) -> Result<Running, StartError> {
    // Before there are threads, for which it would have to wait.
    let descriptors = descriptors::take_all();
    let mut taking = ask(&config, options)?;
    let listening = Listening::open(&config, taking.as_mut())?;
    let failed = |e| StartError::new("look at the listening sockets", e);
    let (listen, admin) =
        (listening.addresses().map_err(failed)?, listening.admin.local_addr().map_err(failed)?);
    let shard_count = shard_count(&config);
    let listeners = listening.of_shards(shard_count).map_err(failed)?;
    let settings = settings(taking.as_ref());
    let notify = notify(options, &settings)?;
    let key = fingerprint_key(&config, taking.as_ref())?;
    let (door, stock) = stock(&config, &listening, taking.is_some(), settings, key)?;
    let (writer, index) = index::index(index_config(&config));
    let shared = publish(config, index, shard_count, key, descriptors)?;
    if taking.is_some() {
        shared.set_sockets(Sockets::Shared);
    }
    let learn = learn::start(shared, writer).map_err(|e| StartError::new("start learning", e))?;
    let control_options = control::Options {
        signals: options.take_signals,
        explain: Some(Box::new(Rehearsal::new(shared))),
        notify: Arc::clone(&notify),
        stock,
    };
    let control = control::start(shared, &learn, listening.admin, control_options)
        .map_err(|e| StartError::new("start the control thread", e))?;
    if let Some(taking) = &mut taking {
        become_ready(shared)?;
        inherit(taking, key, &learn)?;
    }
    let (drivers, shards) = start_shards(shared, listeners)?;
    let running = Running { shared, listen, admin, drivers, shards, control, learn, door };
    running.step_in(taking, &notify)
}

/// Asks the running process for its sockets, if that is wanted.
fn ask(config: &Config, options: StartOptions) -> Result<Option<Taking>, StartError> {
    let path = config.takeover_socket.as_deref().filter(|_| options.take_over);
    let taking = path.map(|path| {
        Taking::ask(path)
            .map_err(|e| StartError::new(format!("take over at {}", path.display()), e))
    });
    taking.transpose()
}

/// What a successor of this process may ask for, and the door it would come to.
fn stock(
    config: &Config,
    listening: &Listening,
    takes_over: bool,
    settings: notify::Settings,
    key: config::FingerprintKey,
) -> Result<(Option<Door>, Option<Stock>), StartError> {
    let Some(path) = &config.takeover_socket else { return Ok((None, None)) };
    let failed = |e| StartError::new(format!("make takeover socket {}", path.display()), e);
    if !takes_over && Door::is_answered(path) {
        return Err(failed(io::Error::from(io::ErrorKind::AddrInUse)));
    }
    let (made, door) = Door::make(path).map_err(failed)?;
    let mut offer = listening.offer(config).map_err(failed)?;
    offer.notify = settings;
    offer.key = Some(key);
    Ok((Some(made), Some(Stock { door, offer })))
}

/// How the service manager is reached: as the environment says, or as it was for the process before.
fn settings(taking: Option<&Taking>) -> notify::Settings {
    let here = notify::Settings::of_environment();
    taking.map_or_else(|| here.clone(), |taking| here.clone().or(taking.notify()))
}

/// The service manager, for a process of its own.
fn notify(options: StartOptions, settings: &notify::Settings) -> Result<Arc<Notify>, StartError> {
    if !options.take_signals {
        return Ok(Arc::default());
    }
    let opened = Notify::open(settings).map(Arc::new);
    opened.map_err(|e| StartError::new("reach the service manager at NOTIFY_SOCKET", e))
}

/// Waits until the backends were asked and one answered, which needs no shard.
fn become_ready(shared: &Published) -> Result<(), StartError> {
    let began = clock::now();
    while shared.phase() == Phase::Starting && clock::now().since(began) / 1000 < TAKEOVER_READY_MS
    {
        std::thread::park_timeout(Duration::from_millis(TICK_MS));
    }
    let why = match shared.phase() {
        Phase::Ready => return Ok(()),
        Phase::Starting => "no backend answered in time",
        _ => "it was told to stop",
    };
    Err(StartError::new("become ready to take over", io::Error::other(why)))
}

/// The key of hashes: the configured one, the one of the process before, a new one.
fn fingerprint_key(
    config: &Config,
    taking: Option<&Taking>,
) -> Result<config::FingerprintKey, StartError> {
    match config.routing.fingerprint_key.or(taking.and_then(Taking::key)) {
        Some(key) => Ok(key),
        None => random_u64().map(config::FingerprintKey::new),
    }
}

/// Takes in what the process before knows, as late as can be, so that it is what it knows now. Without it this process
/// begins with nothing.
fn inherit(
    taking: &mut Taking,
    key: config::FingerprintKey,
    learn: &learn::Handle,
) -> Result<(), StartError> {
    let journal = &learn.insight().journal;
    if taking.key() != Some(key) {
        journal.note(Level::Info, None, "what the process before knows is of no use here");
        return Ok(());
    }
    let told = taking.handover().map_err(|e| StartError::new("hear what is known", e))?;
    let said = match learn.inherit(told) {
        Some(Inherited { paths, homes }) => {
            format!("took over what is known: {paths} prompts, {homes} conversations")
        }
        None => "what the process before knows could not be taken over".to_owned(),
    };
    journal.note(Level::Info, None, said);
    Ok(())
}

impl Running {
    /// Lets the process before know that this one accepts, and opens the door to the next.
    fn step_in(self, taking: Option<Taking>, notify: &Notify) -> Result<Running, StartError> {
        if let Some(taking) = taking {
            if let Err(source) = taking.ready() {
                // Whoever came to this process meanwhile is served to the end.
                self.stop();
                return Err(StartError::new("take over", source));
            }
            self.shared.set_sockets(Sockets::Own);
            notify.ready();
        }
        let opened = self.door.as_ref().map_or(Ok(()), Door::open);
        opened.map_err(|e| StartError::new("open the takeover socket", e))?;
        Ok(self)
    }

    /// Says where it listens and waits until it has drained.
    pub fn announce_and_wait(self) {
        crate::say::err(&self.announcement());
        self.wait();
    }

    /// Where it listens, before what, and on which driver.
    pub fn announcement(&self) -> String {
        let listen: Vec<String> = self.listen.iter().map(ToString::to_string).collect();
        format!(
            "listening on {}, admin on {}, {} backends, {} shards on {}",
            listen.join(", "),
            self.admin,
            self.shared.upstreams.len(),
            self.drivers.len(),
            self.drivers.first().unwrap_or(&"nothing"),
        )
    }

    /// Waits until the proxy has drained, after a signal or [`Running::stop`].
    pub fn wait(self) {
        for shard in self.shards {
            // A shard that panicked has ended; there is nobody left to tell but the exit.
            let _ = shard.join();
        }
        self.shared.set_phase(Phase::Stopping);
        self.control.join();
        self.learn.join();
    }

    /// Stops accepting, lets streams finish for at most the configured time, then cuts them.
    pub fn stop(self) {
        self.control.drain_now();
        self.wait();
    }
}

/// The policy as the index builds it.
pub fn policy_of(config: &Config) -> PolicyKind {
    let routing = &config.routing;
    match routing.policy {
        Policy::RoundRobin => PolicyKind::RoundRobin,
        Policy::Random => PolicyKind::Random,
        Policy::LeastRequests => PolicyKind::LeastRequests,
        Policy::PowerOfTwo => PolicyKind::PowerOfTwo,
        Policy::Ewma => PolicyKind::Ewma,
        Policy::ConsistentHash => PolicyKind::ConsistentHash,
        Policy::Session => PolicyKind::Session,
        Policy::Prefix => PolicyKind::Prefix {
            w_hit: routing.weight_hit,
            w_queue: routing.weight_queue,
            w_pressure: routing.weight_pressure,
        },
        Policy::Cost => PolicyKind::Cost {
            recompute_max: routing.a_max,
            request_tokens: routing.request_charge_tokens,
            conversation_tokens: CONVERSATION_TOKENS,
        },
    }
}

fn index_config(config: &Config) -> index::IndexConfig {
    index::IndexConfig {
        backend_blocks_max: config.routing.evidence_blocks_default,
        ..index::IndexConfig::default()
    }
}

fn shard_count(config: &Config) -> usize {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    config.shards.map_or(available, |shards| usize::try_from(shards).unwrap_or(1)).max(1)
}

fn publish(
    config: Config,
    index: index::IndexHandle,
    shards: usize,
    key: config::FingerprintKey,
    descriptors: u64,
) -> Result<&'static Published, StartError> {
    let fleet = Fleet::new(FleetConfig {
        capacity: config.backends.len(),
        affinity_entries: usize::try_from(config.routing.affinity_entries).unwrap_or(usize::MAX),
        affinity_idle_ms: config.routing.affinity_idle_s.saturating_mul(1000),
    });
    let pins = config.routing.pin_llamacpp_slots;
    let upstreams = config.backends.iter().map(|backend| upstream_of(backend, pins)).collect();
    apply_configured_limits(&config, &fleet);
    // What the configuration says, before any engine was asked.
    let routes = models::Catalog::default().routes(&models::configured(&config));
    let may_open = descriptors::Shares::of(descriptors, config.backends.len());
    let sessions_max = sessions_max(&config, may_open.shards);
    let share = sessions_max.div_ceil(shards);
    // A shard may be a little ahead of the others.
    let sessions_per_shard_max = share.saturating_add(share / 8).min(sessions_max);
    Ok(Box::leak(Box::new(Published::new(Parts {
        config,
        fleet,
        upstreams,
        routes,
        index,
        shards,
        key: FingerprintKey::new(key.reveal()),
        instance: random_u64()?,
        sessions_per_shard_max,
        descriptors_per_shard: may_open.shards / shards,
        visits_at_once: may_open.visits,
    }))))
}

fn random_u64() -> Result<u64, StartError> {
    getrandom::u64()
        .map_err(|e| StartError::new("get random numbers", io::Error::other(e.to_string())))
}

fn upstream_of(backend: &config::Backend, pins: bool) -> Upstream {
    let mut upstream = Upstream::new(&backend.name, &backend.origin.authority());
    if pins && matches!(backend.kind, config::Kind::Auto | config::Kind::LlamaCpp) {
        upstream.pins = Pins::on();
    }
    if let Ok(ip) = backend.origin.host.trim_matches(['[', ']']).parse() {
        upstream.set_address(SocketAddr::new(ip, backend.origin.port));
    }
    upstream
}

/// Gives each backend what the configuration says of it, before anything has asked it.
pub(crate) fn apply_configured_limits(config: &Config, fleet: &Fleet) {
    for (number, backend) in config.backends.iter().enumerate() {
        let here = fleet.backend(backend_id(number));
        here.set_limits(Reading::default().under(backend).limits());
        here.set_enabled(backend.enabled);
    }
}

/// The id of the backend at this place of the configuration, which bounds how many there are.
pub fn backend_id(number: usize) -> BackendId {
    BackendId(u16::try_from(number).unwrap_or(u16::MAX))
}

/// Two descriptors a proxied stream.
fn sessions_max(config: &Config, descriptors: usize) -> usize {
    let asked = config.limits.connections_max.and_then(|max| usize::try_from(max).ok());
    asked.unwrap_or(usize::MAX).min(descriptors / DESCRIPTORS_PER_SESSION).max(1)
}

/// Charge a conversation held adds to a new one's cost, in tokens: tells idle backends apart, never outweighs work.
const CONVERSATION_TOKENS: f64 = 16.0;

type Shards = (Vec<&'static str>, Vec<JoinHandle<io::Result<()>>>);

fn start_shards(
    shared: &'static Published,
    listeners: Vec<Vec<TcpListener>>,
) -> Result<Shards, StartError> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let (mut drivers, mut threads) = (Vec::new(), Vec::new());
    for (number, of_shard) in listeners.into_iter().enumerate() {
        let core = cores.get(number % cores.len().max(1)).copied();
        let (tell, told) = mpsc::channel();
        let seed = random_u64()?;
        let number = u16::try_from(number).unwrap_or(u16::MAX);
        let thread = std::thread::Builder::new()
            .name(format!("shard-{number}"))
            .spawn(move || {
                if let Some(core) = core {
                    core_affinity::set_for_current(core);
                }
                shard::run(shared, number, seed, of_shard, |driver| {
                    // The starter waits for exactly this; if it is gone, so is the process.
                    let _ = tell.send(driver);
                })
            })
            .map_err(|e| StartError::new("start a shard", e))?;
        match told.recv() {
            Ok(driver) => drivers.push(driver),
            Err(_) => {
                let failed = thread.join().unwrap_or_else(|_| Err(io::Error::other("panicked")));
                let source = failed.err().unwrap_or_else(|| io::Error::other("it ended at once"));
                return Err(StartError::new("start a shard", source));
            }
        }
        threads.push(thread);
    }
    Ok((drivers, threads))
}
