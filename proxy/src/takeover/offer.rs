//! What is handed over: the listening sockets, each with the address it was configured as, how the service
//! manager is told of things, and the key without which nothing can be made of what this process knows.
//!
//! One message of bounded size: lines of text, and the sockets beside it in the same order.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use config::FingerprintKey;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::{NO, handover, refusal};
use crate::limits::{TAKEOVER_OFFER_BYTES_MAX, TAKEOVER_SOCKETS_MAX};
use crate::notify::Settings;

/// Room beside a message for all sockets there can be.
const RIGHTS_BYTES: usize = rustix::cmsg_space!(ScmRights(TAKEOVER_SOCKETS_MAX));

/// Who comes to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Clients.
    Listen,
    /// Operators.
    Admin,
}

impl Role {
    const ALL: [Role; 2] = [Role::Listen, Role::Admin];

    fn name(self) -> &'static str {
        match self {
            Role::Listen => "listen",
            Role::Admin => "admin",
        }
    }
}

/// One listening socket.
#[derive(Debug)]
struct Handed {
    role: Role,
    configured: SocketAddr,
    socket: OwnedFd,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    sockets: Vec<Handed>,
    /// How the service manager is told of things.
    pub(crate) notify: Settings,
    /// The key of its hashes, if what it knows may be asked for in words that are understood here.
    pub(crate) key: Option<FingerprintKey>,
}

impl Offer {
    /// Adds a listener.
    pub(crate) fn push(&mut self, role: Role, configured: SocketAddr, listener: TcpListener) {
        self.sockets.push(Handed { role, configured, socket: listener.into() });
    }

    /// Takes out the listener that was configured as this address.
    pub(crate) fn take(&mut self, role: Role, configured: SocketAddr) -> Option<TcpListener> {
        let wanted = |one: &Handed| one.role == role && one.configured == configured;
        let place = self.sockets.iter().position(wanted)?;
        Some(self.sockets.remove(place).socket.into())
    }

    /// Sends it, whole or not at all.
    ///
    /// # Errors
    /// Those of the socket; `WouldBlock` when it takes nothing now.
    pub(crate) fn send(&self, to: impl AsFd) -> io::Result<()> {
        let text = self.text();
        let sockets: Vec<BorrowedFd<'_>> = self.sockets.iter().map(|s| s.socket.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); RIGHTS_BYTES];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if text.len() > TAKEOVER_OFFER_BYTES_MAX
            || sockets.len() > TAKEOVER_SOCKETS_MAX
            || !beside.push(SendAncillaryMessage::ScmRights(&sockets))
        {
            return Err(io::Error::other("too much to hand over"));
        }
        let message = [IoSlice::new(text.as_bytes())];
        match sendmsg(to, &message, &mut beside, SendFlags::NOSIGNAL)? {
            sent if sent == text.len() => Ok(()),
            _ => Err(io::Error::from(io::ErrorKind::WriteZero)),
        }
    }

    /// Receives one.
    ///
    /// # Errors
    /// Those of the socket; what was said instead of an offer; an offer that is none.
    pub(crate) fn receive(from: impl AsFd) -> io::Result<Offer> {
        let mut text = [0_u8; TAKEOVER_OFFER_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); RIGHTS_BYTES];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let into = &mut [IoSliceMut::new(&mut text)];
        let got = recvmsg(from, into, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
        let sockets = beside.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        let sockets: Vec<OwnedFd> = sockets.flatten().collect();
        let text = text.get(..got.bytes).unwrap_or_default();
        if text.starts_with(NO.as_bytes()) {
            return Err(refusal(text));
        }
        let whole = !got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        whole.then(|| Offer::read(text, sockets)).flatten().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "its offer could not be read")
        })
    }

    fn text(&self) -> String {
        let line = |one: &Handed| format!("{} {}\n", one.role.name(), one.configured);
        let mut text: String = self.sockets.iter().map(line).collect();
        if let Some(socket) = &self.notify.socket {
            text.push_str(&format!("notify {socket}\n"));
        }
        if let Some(us) = self.notify.watchdog_us {
            text.push_str(&format!("watchdog_us {us}\n"));
        }
        if let Some(key) = self.key {
            text.push_str(&format!("handover {} {:016x}\n", handover::VERSION, key.reveal()));
        }
        text.push_str("end\n");
        text
    }

    /// Text and sockets must fit: as many sockets as lines name, each of them listening.
    fn read(text: &[u8], sockets: Vec<OwnedFd>) -> Option<Offer> {
        let text = std::str::from_utf8(text).ok()?.strip_suffix("end\n")?;
        let mut offer = Offer::default();
        let mut sockets = sockets.into_iter();
        for line in text.lines() {
            let (word, value) = line.split_once(' ')?;
            match word {
                "notify" => offer.notify.socket = Some(value.to_owned()),
                "handover" => offer.key = key_of_this_version(value)?,
                "watchdog_us" => offer.notify.watchdog_us = Some(value.parse().ok()?),
                _ => {
                    let role = Role::ALL.into_iter().find(|role| role.name() == word)?;
                    let configured = value.parse().ok()?;
                    let socket = sockets.next()?;
                    if !rustix::net::sockopt::socket_acceptconn(&socket).ok()? {
                        return None;
                    }
                    offer.sockets.push(Handed { role, configured, socket });
                }
            }
        }
        sockets.next().is_none().then_some(offer)
    }
}

/// `Some(None)` if what is known is told in other words than those of this version.
fn key_of_this_version(value: &str) -> Option<Option<FingerprintKey>> {
    let (version, key) = value.split_once(' ')?;
    let key = u64::from_str_radix(key, 16).ok().map(FingerprintKey::new)?;
    Some((version.parse() == Ok(handover::VERSION)).then_some(key))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    fn handed_over(offer: &Offer) -> io::Result<Offer> {
        let (ours, theirs) = UnixStream::pair()?;
        offer.send(&ours)?;
        Offer::receive(&theirs)
    }

    #[test]
    fn sockets_arrive_as_what_they_were_configured() {
        let mut offer = Offer::default();
        let listeners = [TcpListener::bind(ANY).unwrap(), TcpListener::bind(ANY).unwrap()];
        let addresses: Vec<_> = listeners.iter().map(|one| one.local_addr().unwrap()).collect();
        for (role, listener) in [Role::Listen, Role::Admin].into_iter().zip(listeners) {
            offer.push(role, ANY, listener);
        }
        offer.notify = Settings { socket: Some("@a b".into()), watchdog_us: Some(7) };
        offer.key = Some(FingerprintKey::new(u64::MAX - 6));
        let mut arrived = handed_over(&offer).unwrap();
        assert!(arrived.key == offer.key && !format!("{arrived:?}").contains("fff9"));
        assert_eq!(arrived.notify, offer.notify);
        let taken = |offer: &mut Offer, role| offer.take(role, ANY)?.local_addr().ok();
        assert_eq!(taken(&mut arrived, Role::Admin), addresses.last().copied());
        assert_eq!(taken(&mut arrived, Role::Listen), addresses.first().copied());
        assert_eq!(taken(&mut arrived, Role::Listen), None);
    }

    #[test]
    fn as_many_sockets_fit_as_can_be_configured_and_no_more() {
        let mut offer = Offer::default();
        let listener = TcpListener::bind(ANY).unwrap();
        let long: SocketAddr =
            "[1234:1234:1234:1234:1234:1234:1234:1234%4294967295]:65535".parse().unwrap();
        for _ in 0..TAKEOVER_SOCKETS_MAX {
            offer.push(Role::Listen, long, listener.try_clone().unwrap());
        }
        assert_eq!(handed_over(&offer).unwrap().sockets.len(), TAKEOVER_SOCKETS_MAX);
        offer.push(Role::Admin, ANY, listener);
        assert!(handed_over(&offer).is_err());
    }

    #[test]
    fn what_is_known_in_words_of_another_version_is_not_asked_for() {
        let read = |line: &str| Offer::read(format!("{line}\nend\n").as_bytes(), vec![]);
        let ours = read(&format!("handover {} 0f", handover::VERSION)).unwrap();
        assert!(ours.key == Some(FingerprintKey::new(15)));
        let theirs = read(&format!("handover {} 0f", handover::VERSION + 1)).unwrap();
        assert!(theirs.key.is_none());
        assert!(read("handover 1").is_none() && read("handover 1 x").is_none());
    }

    #[test]
    fn what_is_no_offer_is_refused() {
        let listening = || OwnedFd::from(TcpListener::bind(ANY).unwrap());
        let connected = || OwnedFd::from(UnixStream::pair().unwrap().0);
        assert!(Offer::read(b"listen 127.0.0.1:0\nend\n", vec![listening()]).is_some());
        for (text, sockets) in [
            (&b"listen 127.0.0.1:0\n"[..], vec![listening()]),
            (b"listen 127.0.0.1:0\nend\n", vec![]),
            (b"listen 127.0.0.1:0\nend\n", vec![listening(), listening()]),
            (b"listen 127.0.0.1:0\nend\n", vec![connected()]),
            (b"listen here\nend\n", vec![listening()]),
            (b"serve 127.0.0.1:0\nend\n", vec![listening()]),
            (b"\xff\nend\n", vec![]),
            (b"", vec![]),
        ] {
            assert!(Offer::read(text, sockets).is_none(), "{:?}", String::from_utf8_lossy(text));
        }
    }
}
