//! Telling the service manager how the process is, in systemd's notify protocol.
//!
//! A datagram a word, to the socket that `NOTIFY_SOCKET` names. It never waits and never fails: a manager
//! that does not listen changes nothing for clients.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// What the manager said of itself when it started the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Path of its socket, or `@` and an abstract name.
    pub(crate) socket: Option<String>,
    /// How long it waits for a sign of life before it ends the process, us.
    pub(crate) watchdog_us: Option<u64>,
}

impl Settings {
    /// What the environment says.
    pub(crate) fn of_environment() -> Settings {
        let variable = |name| std::env::var(name).ok();
        let is_for_us = variable("WATCHDOG_PID").is_none_or(|pid| pid == own_pid().to_string());
        let watchdog_us = variable("WATCHDOG_USEC").filter(|_| is_for_us);
        Settings {
            socket: variable("NOTIFY_SOCKET").filter(|name| !name.contains(char::is_control)),
            watchdog_us: watchdog_us.and_then(|us| us.parse().ok()).filter(|us| *us > 0),
        }
    }

    /// What `other` says where this says nothing.
    pub(crate) fn or(self, other: &Settings) -> Settings {
        Settings {
            socket: self.socket.or_else(|| other.socket.clone()),
            watchdog_us: self.watchdog_us.or(other.watchdog_us),
        }
    }
}

/// The manager, or nobody.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    manager: Option<(UnixDatagram, SocketAddr)>,
    watchdog_us: Option<u64>,
}

impl Notify {
    /// A way to the manager; to nobody when there is none.
    ///
    /// # Errors
    /// When its name is no socket's.
    pub(crate) fn open(settings: &Settings) -> io::Result<Notify> {
        let Some(name) = &settings.socket else { return Ok(Notify::default()) };
        let manager = match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Notify { manager: Some((socket, manager)), watchdog_us: settings.watchdog_us })
    }

    /// How often a sign of life is due: twice as often as it is waited for.
    pub(crate) fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog_us.map(|us| Duration::from_micros((us / 2).max(1)))
    }

    /// The process serves.
    pub(crate) fn ready(&self) {
        self.say("READY=1");
    }

    /// It drains.
    pub(crate) fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// It is alive in all its parts.
    pub(crate) fn alive(&self) {
        self.say("WATCHDOG=1");
    }

    /// A successor is getting ready.
    pub(crate) fn reloading(&self) {
        self.say("RELOADING=1");
    }

    /// Another process is the one to watch from now on.
    pub(crate) fn succeeded_by(&self, pid: i32) {
        self.say(&format!("MAINPID={pid}"));
    }

    /// The successor failed: this process is still the one to watch, and it serves.
    pub(crate) fn goes_on(&self) {
        self.say(&format!("MAINPID={}\nREADY=1", own_pid()));
    }

    fn say(&self, word: &str) {
        if let Some((socket, manager)) = &self.manager {
            // Nobody can be told that it cannot be told.
            let _ = socket.send_to_addr(word.as_bytes(), manager);
        }
    }
}

fn own_pid() -> u32 {
    std::process::id()
}
