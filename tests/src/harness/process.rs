//! The proxy as a process of its own, for what only a process has: signals, standard streams, an exit.
//!
//! No second program is needed: the test binary starts itself again and, told so by its environment, serves instead of
//! testing. Such a binary has a test that calls [`serve_if_told`] and nothing else.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use config::Config;
use proxy::start::{StartOptions, start};

use super::proxy::{figure, is_ready};
use super::{Client, settled};

/// The environment variable that names the configuration to serve.
const SERVE: &str = "SHEARWATER_TEST_SERVE";

/// The environment variable that says to take over from the process that runs.
const TAKE_OVER: &str = "SHEARWATER_TEST_TAKE_OVER";

/// Serves, if this process was started for it; returns when it has drained.
pub fn serve_if_told() {
    let Some(path) = std::env::var_os(SERVE) else { return };
    let config = Config::load(Path::new(&path)).unwrap_or_else(|error| panic!("{error}"));
    let take_over = std::env::var_os(TAKE_OVER).is_some();
    let started = start(config, StartOptions { take_signals: true, take_over });
    started.unwrap_or_else(|error| panic!("{error}")).announce_and_wait();
}

/// A process that may never come to serve; killed when dropped.
#[derive(Debug)]
pub struct Launched {
    child: Child,
    folder: PathBuf,
}

/// A running proxy process; killed when dropped.
#[derive(Debug)]
pub struct Process {
    launched: Launched,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where operators connect.
    pub admin: SocketAddr,
}

impl Launched {
    /// Starts this binary as a proxy, and waits for nothing; see [`Process::start`].
    pub fn start(test: &str, text: &str) -> Launched {
        Launched::start_with(test, text, &[])
    }

    /// The same, told to take over from the process that runs.
    pub fn successor(test: &str, text: &str) -> Launched {
        Launched::start_with(test, text, &[(TAKE_OVER, "1")])
    }

    fn start_with(test: &str, text: &str, variables: &[(&str, &str)]) -> Launched {
        Launched::serving(Command::new(this_binary()), test, text, variables)
    }

    /// The same behind a few words of shell.
    fn start_behind(words: &str, test: &str, text: &str) -> Launched {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{words} && exec \"$@\""), "sh"]).arg(this_binary());
        Launched::serving(command, test, text, &[])
    }

    fn serving(
        mut command: Command,
        test: &str,
        text: &str,
        variables: &[(&str, &str)],
    ) -> Launched {
        let (folder, config) = folder_with(text);
        command.args([test, "--exact", "--nocapture"]).env(SERVE, &config);
        command.envs(variables.iter().copied());
        Launched::spawned(command, folder)
    }

    fn spawned(mut command: Command, folder: PathBuf) -> Launched {
        let stream = |name: &str| Stdio::from(File::create(folder.join(name)).expect("a file"));
        command.stdin(Stdio::null()).stdout(stream("stdout")).stderr(stream("stderr"));
        let child = command.spawn().expect("it starts");
        Launched { child, folder }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote to a file of its folder.
    pub fn wrote(&self, name: &str) -> String {
        let bytes = fs::read(self.folder.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        settled("the process ends", async || self.child.try_wait().expect("a child")).await
    }

    /// Ends it without a warning.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
    }

    /// Waits until it serves.
    pub async fn serves(self) -> Process {
        let (listen, admin) = announced(&self.folder).await;
        Process { launched: self, listen, admin }
    }
}

impl Process {
    /// Starts a proxy from this text of a configuration file. `{folder}` in it stands for a folder of the process's
    /// own. `test` names the test of this binary that calls [`serve_if_told`].
    pub async fn start(test: &str, text: &str) -> Process {
        Process::start_with(test, text, &[]).await
    }

    /// The same with more environment variables.
    pub async fn start_with(test: &str, text: &str, variables: &[(&str, &str)]) -> Process {
        Launched::start_with(test, text, variables).serves().await
    }

    /// The same in a shell that has set limits or the like before, with these words.
    pub async fn start_behind(words: &str, test: &str, text: &str) -> Process {
        Launched::start_behind(words, test, text).serves().await
    }

    /// The same with a program that was built as it is shipped.
    pub async fn of_program(program: &Path, text: &str) -> Process {
        let (folder, config) = folder_with(text);
        let mut command = Command::new(program);
        command.arg("--config").arg(&config);
        Launched::spawned(command, folder).serves().await
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.launched.id()
    }

    /// A new client connection.
    pub async fn client(&self) -> Client {
        Client::connect(self.listen).await
    }

    /// A GET on the admin address: status and body.
    pub async fn admin(&self, path: &str) -> (u16, String) {
        let reply = Client::connect(self.admin).await.get(path).await;
        (reply.status, reply.text())
    }

    /// Waits until it says that it is ready.
    pub async fn is_ready(&self) {
        is_ready(self.admin).await;
    }

    /// The figure of a metric that has no labels.
    pub async fn metric(&self, name: &str) -> u64 {
        figure(&self.admin("/metrics").await.1, name)
    }

    /// What it wrote to a file of its folder: `stdout`, `stderr`, or another that it was told to write.
    pub fn wrote(&self, name: &str) -> String {
        self.launched.wrote(name)
    }

    /// Sends it the signal to stop.
    pub fn terminate(&self) {
        let sent = Command::new("kill").arg("-TERM").arg(self.id().to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()), "it runs");
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        matches!(self.launched.child.try_wait(), Ok(None))
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        self.launched.ended().await
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        // It may have ended, and the folder may be in use for a moment longer: neither is a failure of the test.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn this_binary() -> PathBuf {
    std::env::current_exe().expect("this binary")
}

/// A folder of a process's own with its configuration, and that file.
fn folder_with(text: &str) -> (PathBuf, PathBuf) {
    let name = format!("shearwater-test-{}-{:016x}", std::process::id(), fastrand::u64(..));
    let folder = std::env::temp_dir().join(name);
    fs::create_dir(&folder).expect("a folder");
    let config = folder.join("shearwater.toml");
    let text = text.replace("{folder}", &folder.to_string_lossy());
    fs::write(&config, text).expect("a file");
    (folder, config)
}

/// The addresses it says it listens on.
async fn announced(folder: &Path) -> (SocketAddr, SocketAddr) {
    settled("the process says where it listens", async || {
        let said = fs::read_to_string(folder.join("stderr")).ok()?;
        let line = said.lines().find(|line| line.contains("listening on "))?;
        let after = |mark: &str| {
            let (_, rest) = line.split_once(mark)?;
            rest.split([',', ' ']).next()?.parse().ok()
        };
        Some((after("listening on ")?, after("admin on ")?))
    })
    .await
}
