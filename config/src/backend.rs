//! One `[[backend]]`: its address, its name, and what it may be asked for.
//!
//! Names are never resolved here. Two backends with one address are refused: each would hand out
//! the slots the other already gave away.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::check::{flag_problem, narrow};
use crate::error::Problem;
use crate::model::{Backend, Kind, Origin};
use crate::raw::{Bound, Section, Unit, Value, shortened};

/// Backends in one configuration: more servers than one site has. Each takes some 18 KB of memory and 1.4 KB of metrics.
pub const BACKENDS_MAX: usize = 16_384;

/// A name appears in every metric line and in a response header.
const NAME_BYTES_MAX: usize = 128;
/// The longest host name DNS allows.
const HOST_BYTES_MAX: usize = 253;
/// Longest model name; the longest public ones are a third of it.
const MODEL_BYTES_MAX: usize = 256;
/// Models or tags of one backend.
const LIST_MAX: usize = 1024;
/// How errors name the argument that gives a backend.
const BACKEND_FLAG: &str = "--backend";
/// Longest tag.
const TAG_BYTES_MAX: usize = 64;

const SLOTS: Bound = Bound {
    default: 0,
    min: 1,
    max: 1_048_575,
    why: "a backend runs at least one request, and slots are counted in 20 bits",
};
const KV_TOKENS: Bound = Bound {
    default: 0,
    min: 256,
    max: 1 << 32,
    why: "a smaller pool holds no request, a larger one is a typing error",
};

const RANKS: Bound =
    Bound { default: 0, min: 1, max: 1024, why: "there is at least one engine behind an address" };

/// All backends of a file.
pub(crate) fn backends(root: &mut Section<'_>, problems: &mut Vec<Problem>) -> Vec<Backend> {
    let sections = root.children("backend");
    if sections.len() > BACKENDS_MAX {
        root.fail_key("backend", None, &format!("must be at most {BACKENDS_MAX} backends"));
    }
    if sections.is_empty() && !root.has_failed("backend") {
        root.fail_key("backend", None, "missing: at least one [[backend]] with a url is needed");
    }
    let mut seen = Seen::default();
    let mut backends = Vec::new();
    for section in sections.into_iter().take(BACKENDS_MAX) {
        backends.extend(backend(section, &mut seen, problems));
    }
    backends
}

/// Names and addresses already taken, by the key of the backend that took them.
#[derive(Default)]
struct Seen {
    names: HashMap<String, String>,
    origins: HashMap<String, String>,
}

fn backend(
    mut section: Section<'_>,
    seen: &mut Seen,
    problems: &mut Vec<Problem>,
) -> Option<Backend> {
    let origin = url(&mut section, seen);
    let name = name(&mut section, origin.as_ref(), seen);
    let kind = section.choice("kind", Kind::Auto, &Kind::NAMES);
    let models = names(&mut section, "models", MODEL_BYTES_MAX, model_fault);
    let tags = names(&mut section, "tags", TAG_BYTES_MAX, name_fault);
    let slots = section.given("slots", Unit::Count, &SLOTS).map(narrow);
    let kv_tokens = section.given("kv_tokens", Unit::Count, &KV_TOKENS);
    let ranks = section.given("ranks", Unit::Count, &RANKS).map(narrow);
    let enabled = section.flag("enabled", true);
    problems.extend(section.finish());
    let (name, origin) = (name?, origin?);
    Some(Backend { name, origin, kind, models, tags, slots, kv_tokens, ranks, enabled })
}

/// The backends of a command line: addresses and nothing else.
pub(crate) fn command_line(urls: &[&str], problems: &mut Vec<Problem>) -> Vec<Backend> {
    let (mut backends, mut seen) = (Vec::new(), HashSet::new());
    for url in urls {
        let shown = if url.contains('@') { "(hidden)".to_owned() } else { shortened(url) };
        match origin(url) {
            Ok(origin) if !seen.insert(origin.authority()) => {
                problems.push(flag_problem(BACKEND_FLAG, &shown, "given twice"));
            }
            Ok(origin) => backends.push(bare(origin)),
            Err(reason) => problems.push(flag_problem(BACKEND_FLAG, &shown, &reason)),
        }
    }
    if !(1..=BACKENDS_MAX).contains(&urls.len()) {
        let reason = format!("must be given 1 to {BACKENDS_MAX} times, as http://host:port");
        problems.push(Problem { value: None, ..flag_problem(BACKEND_FLAG, "", &reason) });
    }
    backends
}

fn bare(origin: Origin) -> Backend {
    Backend {
        name: origin.authority(),
        origin,
        kind: Kind::Auto,
        models: Vec::new(),
        tags: Vec::new(),
        slots: None,
        kv_tokens: None,
        ranks: None,
        enabled: true,
    }
}

fn url(section: &mut Section<'_>, seen: &mut Seen) -> Option<Origin> {
    if !section.is_typed("url") {
        section.fail_key("url", None, "missing: where the backend listens, as http://host:port");
    }
    let (found, text) = section.string("url")?;
    let origin = match origin(text) {
        Ok(origin) => origin,
        // What stands before an @ may be a password.
        Err(reason) if text.contains('@') => return section.fail_hidden(&found, &reason),
        Err(reason) => return section.fail(&found, &reason),
    };
    match seen.origins.insert(origin.authority(), found.key.clone()) {
        Some(other) => section.fail(
            &found,
            &format!("already given as {other}: one server, listed once, or its slots count twice"),
        ),
        None => Some(origin),
    }
}

fn name(section: &mut Section<'_>, origin: Option<&Origin>, seen: &mut Seen) -> Option<String> {
    let default = origin.map(Origin::authority);
    let given = section.string("name");
    let name = given.as_ref().map(|(_, text)| (*text).to_owned()).or(default)?;
    if let Some((found, text)) = &given {
        if let Some(reason) = name_fault(text) {
            return section.fail(found, &reason);
        }
        if text.len() > NAME_BYTES_MAX {
            return section.fail(found, &format!("must be at most {NAME_BYTES_MAX} bytes"));
        }
    }
    let key = section.full("name");
    match (seen.names.insert(name.clone(), key), given) {
        (None, _) => Some(name),
        (Some(other), Some((found, _))) => {
            section.fail(&found, &format!("already used by {other}: names must be unique"))
        }
        (Some(other), None) => {
            section.fail_key("name", None, &format!("default {name} is already used by {other}"));
            None
        }
    }
}

/// A list of short strings without repetition.
fn names(
    section: &mut Section<'_>,
    key: &'static str,
    bytes_max: usize,
    fault: fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (place, text) in section.strings(key) {
        if let Some(reason) = fault(text) {
            section.fail::<()>(&place, &reason);
        } else if text.len() > bytes_max {
            section.fail::<()>(&place, &format!("must be at most {bytes_max} bytes"));
        } else if names.len() == LIST_MAX {
            too_long(section, &place);
            break;
        } else if names.iter().any(|name| name == text) {
            section.fail::<()>(&place, "given twice");
        } else {
            names.push(text.to_owned());
        }
    }
    names
}

fn too_long(section: &mut Section<'_>, place: &Value<'_>) {
    section.fail::<()>(place, &format!("must be a list of at most {LIST_MAX}"));
}

/// Names and tags stand in headers, metric labels and log lines, so they need no quoting there.
fn name_fault(name: &str) -> Option<String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-/[]@+".contains(&byte);
    match name {
        "" => Some("must not be empty".to_owned()),
        _ if name.bytes().all(allowed) => None,
        _ => Some("must be letters, digits or any of . _ : - / [ ] @ +".to_owned()),
    }
}

fn model_fault(name: &str) -> Option<String> {
    match name {
        "" => Some("must not be empty".to_owned()),
        _ if name.chars().any(char::is_control) => Some("must have no control bytes".to_owned()),
        _ => None,
    }
}

/// Reads `http://host[:port][/]`.
fn origin(url: &str) -> Result<Origin, String> {
    let rest = match url.split_once("://") {
        Some(("http", rest)) => rest,
        Some(("https", _)) => {
            return Err("https to a backend is not supported: use http in a trusted network".into());
        }
        _ => return Err("must start with http://".to_owned()),
    };
    if rest.contains('@') {
        return Err("must have no user or password: requests keep the client's own".to_owned());
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#']) {
        return Err("must have no path: requests keep the client's own".to_owned());
    }
    let (host, port) = split_port(authority)?;
    Ok(Origin { host: self::host(host)?, port })
}

fn split_port(authority: &str) -> Result<(&str, u16), String> {
    let port_at = match (authority.rfind(':'), authority.rfind(']')) {
        (Some(colon), Some(bracket)) if colon < bracket => None,
        (colon, _) => colon,
    };
    let Some(at) = port_at else { return Ok((authority, 80)) };
    let (host, port) = authority.split_at(at);
    let digits = port.trim_start_matches(':');
    match digits.parse::<u16>() {
        Ok(port) if port > 0 && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Ok((host, port))
        }
        _ => Err("must have a port from 1 to 65535".to_owned()),
    }
}

fn host(host: &str) -> Result<String, String> {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return match inner.parse::<Ipv6Addr>() {
            Ok(address) => Ok(address.to_string()),
            Err(_) => Err("must have an IPv6 address between the brackets".to_owned()),
        };
    }
    if host.contains(':') {
        return Err("must have brackets around an IPv6 address".to_owned());
    }
    if host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && !host.is_empty() {
        return match host.parse::<Ipv4Addr>() {
            Ok(address) => Ok(address.to_string()),
            Err(_) => Err("must have an IPv4 address of four numbers, or a host name".to_owned()),
        };
    }
    if host.len() > HOST_BYTES_MAX || !host.split('.').all(is_label) {
        return Err("must have a host name of letters, digits, - and _".to_owned());
    }
    Ok(host.to_ascii_lowercase())
}

fn is_label(label: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=63).contains(&label.len()) && label.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_port_and_final_slash() {
        for (url, authority) in [
            ("http://10.0.0.1:8000", "10.0.0.1:8000"),
            ("http://10.0.0.1:8000/", "10.0.0.1:8000"),
            ("http://Gpu-1.example.org", "gpu-1.example.org:80"),
            ("http://[::1]:8000", "[::1]:8000"),
            ("http://[0:0::1]", "[::1]:80"),
            ("http://my_service:1", "my_service:1"),
        ] {
            assert_eq!(origin(url).map(|origin| origin.authority()), Ok(authority.to_owned()));
        }
    }

    #[test]
    fn anything_that_is_no_plain_address_is_refused() {
        for url in [
            "",
            "10.0.0.1:8000",
            "ftp://a:1",
            "https://a:1",
            "HTTP//a:1",
            "http://",
            "http://:8000",
            "http://a:0",
            "http://a:+1",
            "http://a:65536",
            "http://a:1:2",
            "http://a:",
            "http://a//",
            "http://a/v1",
            "http://a?b",
            "http://u:p@a:1",
            "http://[::1:80",
            "http://[a]:80",
            "http://1.2.3:80",
            "http://a b:80",
            "http://a..b:80",
            "http://a\r\nHost:80",
        ] {
            assert!(origin(url).is_err(), "{url:?} was read as an address");
        }
    }
}
