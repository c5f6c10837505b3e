//! From the file as typed to checked values: every key, its default, its bounds and their reason.
//!
//! These files are the one place a key of the file is named. What is missing here is unknown.
//! Bounds err on the generous side: they catch typing errors and values that cannot work, not
//! values somebody dislikes.

mod control;
mod edge;
mod routing;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::backend;
use crate::error::Problem;
use crate::model::{Config, UnknownModel};
use crate::raw::{Bound, Section, Unit, Value};
use crate::source::empty_document;

/// Listening addresses of one process.
const LISTEN_MAX: usize = 16;

/// Linux takes 107 bytes for a socket's path, and it is made under a longer name first.
const SOCKET_PATH_BYTES_MAX: usize = 96;

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);

const SHARDS: Bound =
    Bound { default: 0, min: 1, max: 1024, why: "0 is one per core this process may use" };

/// Checks a whole file, or says everything that is wrong with it.
pub(crate) fn config(text: &str, document: &Spanned<DeTable<'_>>) -> Result<Config, Vec<Problem>> {
    let mut root = Section::root(text, document);
    let mut problems = Vec::new();
    let backends = backend::backends(&mut root, &mut problems);
    let config = Config { backends, ..everything_else(&mut root, &mut problems) };
    problems.extend(root.finish());
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

/// Checks what a command line without a file gives.
pub(crate) fn command_line(
    urls: &[&str],
    listen: &[SocketAddr],
    admin: Option<SocketAddr>,
) -> Result<Config, Vec<Problem>> {
    let document = empty_document();
    let mut problems = Vec::new();
    let mut config = everything_else(&mut Section::root("", &document), &mut problems);
    if !listen.is_empty() {
        config.listen = listen.to_vec();
    }
    config.admin = admin.unwrap_or(config.admin);
    if let Some(reason) = collision(&config.listen, config.admin) {
        problems.push(flag_problem("--admin", &config.admin.to_string(), &reason));
    }
    config.backends = backend::command_line(urls, &mut problems);
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

/// A problem with an argument of the command line.
pub(crate) fn flag_problem(flag: &str, value: &str, reason: &str) -> Problem {
    let value = Some(value.to_owned());
    Problem { line: None, key: flag.to_owned(), value, reason: reason.to_owned() }
}

/// All keys but the backends.
fn everything_else(root: &mut Section<'_>, problems: &mut Vec<Problem>) -> Config {
    let listen = listen(root);
    let admin = admin(root, &listen);
    Config {
        listen,
        admin,
        takeover_socket: takeover_socket(root),
        shards: root.unless_zero("shards", Unit::Count, &SHARDS).map(narrow),
        passthrough: root.flag("passthrough", true),
        unknown_model: root.choice("unknown_model", UnknownModel::Reject, &UnknownModel::NAMES),
        response_headers: root.flag("response_headers", true),
        backends: Vec::new(),
        routing: routing::routing(root.child("routing"), problems),
        repair: edge::repair(root.child("repair"), problems),
        limits: edge::limits(root.child("limits"), problems),
        timeouts: edge::timeouts(root.child("timeouts"), problems),
        stream: edge::stream(root.child("stream"), problems),
        health: control::health(root.child("health"), problems),
        log: control::log(root.child("log"), problems),
        explain: control::explain(root.child("explain"), problems),
    }
}

fn listen(root: &mut Section<'_>) -> Vec<SocketAddr> {
    let Some(found) = root.get("listen") else { return vec![LISTEN] };
    let typed = match found.value {
        DeValue::String(_) => root.string("listen").into_iter().collect(),
        DeValue::Array(_) => root.strings("listen"),
        _ => {
            root.fail::<()>(&found, "must be an address in quotes, or a list of such");
            return vec![LISTEN];
        }
    };
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for (found, text) in &typed {
        let Some(address) = socket_address(root, found, text) else { continue };
        if addresses.len() == LISTEN_MAX {
            root.fail::<()>(found, &format!("must be at most {LISTEN_MAX} addresses"));
            break;
        }
        if address.port() != 0 && addresses.contains(&address) {
            root.fail::<()>(found, "given twice");
        }
        addresses.push(address);
    }
    if typed.is_empty() && !root.has_failed("listen") {
        root.fail_key("listen", None, "must be an address, or a list of at least one");
    }
    addresses
}

fn admin(root: &mut Section<'_>, listen: &[SocketAddr]) -> SocketAddr {
    let typed = root.string("admin");
    let address =
        typed.and_then(|(found, text)| socket_address(root, &found, text)).unwrap_or(ADMIN);
    if let Some(reason) = collision(listen, address) {
        root.fail_key("admin", Some(&address.to_string()), &reason);
    }
    address
}

fn takeover_socket(root: &mut Section<'_>) -> Option<PathBuf> {
    let (found, text) = root.string("takeover_socket")?;
    if !text.starts_with('/') || text.contains('\0') || text.len() > SOCKET_PATH_BYTES_MAX {
        let reason = format!("must be an absolute path of at most {SOCKET_PATH_BYTES_MAX} bytes");
        return root.fail(&found, &reason);
    }
    Some(PathBuf::from(text))
}

fn socket_address(root: &mut Section<'_>, found: &Value<'_>, text: &str) -> Option<SocketAddr> {
    match text.parse() {
        Ok(address) => Some(address),
        Err(_) => root.fail(found, "must be an IP address and a port, such as 0.0.0.0:8080"),
    }
}

/// Whether the admin address is one clients connect to. Port 0 never collides.
fn collision(listen: &[SocketAddr], admin: SocketAddr) -> Option<String> {
    let same = |address: &&SocketAddr| {
        let any = address.ip().is_unspecified() || admin.ip().is_unspecified();
        address.port() == admin.port() && (any || address.ip() == admin.ip())
    };
    let taken = listen.iter().filter(|address| address.port() != 0).find(same)?;
    Some(format!("is taken by listen = \"{taken}\": clients must not reach the admin address"))
}

/// A value already within bounds that fit 32 bits.
pub(crate) fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Keeps `value` at or below the value of another key. A value that was typed is refused when it
/// is above; a default gives way without a word.
fn not_above(section: &mut Section<'_>, key: &str, value: u64, other: (&str, u64)) -> u64 {
    let (other_key, limit) = other;
    if value > limit && section.is_typed(key) {
        let reason = format!("must not be above {other_key} ({limit})");
        section.fail_key(key, Some(&value.to_string()), &reason);
    }
    value.min(limit)
}
