//! Names to addresses. Resolved again from time to time and when connecting fails, since a fleet moves.
//!
//! The system's resolver is used, on a helper thread of the runtime; a literal address asks nobody.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use config::Origin;

/// The address of a literal host.
pub(crate) fn literal(origin: &Origin) -> Option<SocketAddr> {
    origin.host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, origin.port))
}

/// Asks the resolver.
///
/// # Errors
/// In words: no such name, no answer in time.
pub(crate) async fn resolve(origin: &Origin, timeout_ms: u64) -> Result<Vec<SocketAddr>, String> {
    let lookup = tokio::net::lookup_host((origin.host.as_str(), origin.port));
    match tokio::time::timeout(Duration::from_millis(timeout_ms), lookup).await {
        Ok(Ok(found)) => Ok(found.collect()),
        Ok(Err(error)) => Err(super::http_client::clipped(&error.to_string())),
        Err(_) => Err(format!("no answer of the resolver within {timeout_ms} ms")),
    }
}

/// Which of the addresses to use: the one in use while it is still among them, unless it just failed
/// and there is another.
pub(crate) fn choose(
    current: Option<SocketAddr>,
    found: &[SocketAddr],
    failing: bool,
) -> Option<SocketAddr> {
    let kept = current.filter(|address| found.contains(address));
    match kept {
        Some(address) if !failing => Some(address),
        Some(address) => found.iter().copied().find(|other| *other != address).or(Some(address)),
        None => found.first().copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 80))
    }

    #[test]
    fn the_address_in_use_is_kept_while_it_is_still_there_and_works() {
        let found = [address(1), address(2)];
        assert_eq!(choose(Some(address(2)), &found, false), Some(address(2)));
        assert_eq!(choose(Some(address(2)), &found, true), Some(address(1)));
        assert_eq!(choose(Some(address(3)), &found, false), Some(address(1)));
        assert_eq!(choose(Some(address(1)), &found[..1], true), Some(address(1)));
        assert_eq!(choose(None, &[], false), None);
    }

    #[test]
    fn a_literal_address_needs_no_resolver() {
        let origin = |host: &str| Origin { host: host.to_owned(), port: 8000 };
        assert_eq!(literal(&origin("127.0.0.1")), Some(SocketAddr::from(([127, 0, 0, 1], 8000))));
        assert!(literal(&origin("::1")).is_some_and(|address| address.is_ipv6()));
        assert_eq!(literal(&origin("gpu-1")), None);
    }
}
