//! One base address: where to connect and what to put before each path.

use std::net::{SocketAddr, ToSocketAddrs};

use hyper::Uri;
use hyper::header::HeaderValue;

use super::super::Error;

/// A resolved `http://host[:port][/prefix]`.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// Value of the `Host` header.
    pub(crate) host: HeaderValue,
    /// Path before `/v1/…`, without a slash at its end.
    pub(crate) prefix: String,
}

impl Target {
    /// Resolves `url` once, before the run, so that name lookups are not measured.
    pub(crate) fn resolve(url: &str) -> Result<Target, Error> {
        let refuse = |reason: String| Error::Url { url: url.to_owned(), reason };
        let uri: Uri = url.parse().map_err(|error| refuse(format!("{error}")))?;
        if uri.scheme_str() != Some("http") {
            return Err(refuse("must begin with http://".to_owned()));
        }
        let Some(authority) = uri.authority() else {
            return Err(refuse("has no host".to_owned()));
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let address = (host, authority.port_u16().unwrap_or(80))
            .to_socket_addrs()
            .map_err(|error| refuse(error.to_string()))?
            .next()
            .ok_or_else(|| refuse("resolves to no address".to_owned()))?;
        let host =
            HeaderValue::from_str(authority.as_str()).map_err(|error| refuse(error.to_string()))?;
        let prefix = uri.path().trim_end_matches('/').trim_end_matches("/v1").to_owned();
        Ok(Target { address, host, prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_address_keeps_its_prefix_and_loses_v1() {
        let target = Target::resolve("http://127.0.0.1:81/team/v1/").expect("valid");
        assert_eq!(target.address, "127.0.0.1:81".parse().expect("address"));
        assert_eq!(
            (target.prefix.as_str(), &target.host),
            ("/team", &"127.0.0.1:81".parse().expect("host"))
        );
        let target = Target::resolve("http://[::1]").expect("valid");
        assert_eq!(target.address, "[::1]:80".parse().expect("address"));
        assert_eq!(target.prefix, "");
    }

    #[test]
    fn other_schemes_are_refused_with_the_address() {
        let error = Target::resolve("https://127.0.0.1").expect_err("no TLS here");
        assert_eq!(error.to_string(), "--url https://127.0.0.1: must begin with http://");
    }
}
