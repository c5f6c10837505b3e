//! The service manager is told how the process is: ready, alive, replaced, stopping.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use loadgen::engine::{Persona, SimEngine};
use tests::harness::{Launched, Process, config_text, engine, settled};

use crate::takeover::Scratch;

const TEST: &str = "the_proxy_as_a_process";

/// A service manager that hears.
struct Systemd {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Systemd {
    fn at(address: &SocketAddr) -> Systemd {
        let socket = UnixDatagram::bind_addr(address).expect("a socket");
        socket.set_nonblocking(true).expect("an option");
        Systemd { socket, heard: Vec::new() }
    }

    fn of_path(path: &Path) -> Systemd {
        Systemd::at(&SocketAddr::from_pathname(path).expect("a short path"))
    }

    /// Waits until it hears this; what it heard before is forgotten.
    async fn hears(&mut self, word: &str) {
        settled(&format!("systemd hears {word}"), async || {
            let mut bytes = [0; 256];
            while let Ok(length) = self.socket.recv(&mut bytes) {
                self.heard.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
            }
            let place = self.heard.iter().position(|heard| heard == word)?;
            self.heard.drain(..=place);
            Some(())
        })
        .await;
    }
}

fn text(engine: &SimEngine, door: &Scratch) -> String {
    let door = door.0.display();
    let settings = format!("takeover_socket = \"{door}\"\n[timeouts]\ndrain_grace_ms = 0\n");
    config_text(&[engine.url()], &settings)
}

#[tokio::test]
async fn systemd_hears_of_readiness_life_and_end() {
    let engine = SimEngine::start(engine(Persona::Vllm)).expect("a port");
    let name = format!("shearwater-test-{:016x}", fastrand::u64(..));
    let address = SocketAddr::from_abstract_name(&name).expect("a short name");
    let mut systemd = Systemd::at(&address);
    let variables = [("NOTIFY_SOCKET", format!("@{name}")), ("WATCHDOG_USEC", "200000".into())];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    let door = Scratch::new();
    let mut process = Process::start_with(TEST, &text(&engine, &door), &variables).await;
    systemd.hears("READY=1").await;
    systemd.hears("WATCHDOG=1").await;
    systemd.hears("WATCHDOG=1").await;
    process.terminate();
    systemd.hears("STOPPING=1").await;
    assert!(process.ended().await.success());
}

#[tokio::test]
async fn a_successor_is_made_known_and_speaks_for_itself() {
    let engine = SimEngine::start(engine(Persona::Vllm)).expect("a port");
    let (path, door) = (Scratch::new(), Scratch::new());
    let mut systemd = Systemd::of_path(&path.0);
    let text = text(&engine, &door);
    let path = path.0.to_string_lossy();
    let variables = [("NOTIFY_SOCKET", &*path), ("WATCHDOG_USEC", "200000")];
    let mut old = Process::start_with(TEST, &text, &variables).await;
    systemd.hears("READY=1").await;
    // One that fails first.
    let mut broken =
        Launched::successor(TEST, &text.replace("listen = \"", "listen = \"9.9.9.9:1\"\n#"));
    assert!(!broken.ended().await.success());
    systemd.hears("RELOADING=1").await;
    systemd.hears(&format!("MAINPID={}\nREADY=1", old.id())).await;
    let mut new = Launched::successor(TEST, &text).serves().await;
    systemd.hears("RELOADING=1").await;
    systemd.hears(&format!("MAINPID={}", new.id())).await;
    systemd.hears("READY=1").await;
    assert!(old.ended().await.success());
    systemd.hears("WATCHDOG=1").await;
    assert!(!systemd.heard.iter().any(|word| word == "STOPPING=1"), "{:?}", systemd.heard);
    new.terminate();
    systemd.hears("STOPPING=1").await;
    assert!(new.ended().await.success());
}

/// The unit of the README, with programs that are there on any machine.
#[test]
fn systemd_finds_no_fault_with_the_unit_that_is_documented() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(readme).expect("a README");
    let (_, rest) = readme.split_once("```ini\n").expect("a unit");
    let (unit, _) = rest.split_once("```").expect("its end");
    let file = Scratch(Scratch::new().0.with_extension("service"));
    let unit = unit.replace("/usr/local/bin/shearwater", "/bin/true");
    std::fs::write(&file.0, unit).expect("a file");
    match std::process::Command::new("systemd-analyze").arg("verify").arg(&file.0).output() {
        Err(error) => eprintln!("SKIPPED: no systemd-analyze here: {error}"),
        Ok(said) => {
            let words = String::from_utf8_lossy(&said.stderr);
            assert!(said.status.success() && words.is_empty(), "{words}");
        }
    }
}
