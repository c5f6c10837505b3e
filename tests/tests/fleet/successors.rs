//! What a successor knows from its first request on: who holds whose conversation.

use loadgen::engine::{Persona, SimEngine};
use tests::harness::{Launched, Process, config_text, engine};

use crate::said::{Talk, prose};
use crate::takeover::Scratch;

const TEST: &str = "the_proxy_as_a_process";
const TALKS: u64 = 12;

fn text(door: &Scratch, policy: &str, engines: &[SimEngine]) -> String {
    let settings = format!(
        "takeover_socket = \"{}\"\n[timeouts]\ndrain_grace_ms = 0\n\
         [routing]\npolicy = \"{policy}\"\n[log]\naccess = \"off\"\nlevel = \"info\"\n",
        door.0.display()
    );
    let urls: Vec<String> = engines.iter().map(SimEngine::url).collect();
    config_text(&urls, &settings)
}

async fn ready(process: Process) -> Process {
    process.is_ready().await;
    process
}

/// How many of the conversations find the whole of what was said before, once another process serves: a successor, or one
/// that was started after the first had ended.
async fn found_again(policy: &str, takes_over: bool) -> u64 {
    let engines: Vec<SimEngine> =
        (0..3).map(|_| SimEngine::start(engine(Persona::Vllm)).expect("a free port")).collect();
    let door = Scratch::new();
    let text = text(&door, policy, &engines);
    let mut old = ready(Process::start(TEST, &text).await).await;
    let mut talks = Vec::new();
    for number in 0..TALKS {
        let mut talk = Talk::new(old.listen, &prose(10 + number, 2_000)).await;
        let before = talk.say(&prose(100 + number, 4_000)).await.prompt;
        talks.push((talk, before));
    }
    let new = if takes_over {
        let new = Launched::successor(TEST, &text).serves().await;
        assert!(new.wrote("stderr").contains("took over what is known"), "{}", new.wrote("stderr"));
        new
    } else {
        old.terminate();
        assert!(old.ended().await.success());
        Process::start(TEST, &text).await
    };
    let new = ready(new).await;
    let mut found = 0;
    for (number, (talk, before)) in talks.iter_mut().enumerate() {
        talk.connect(new.listen).await;
        // An engine's cache holds whole blocks only.
        let said = talk.say(&prose(500 + number as u64, 300)).await;
        found += u64::from(said.cached + 32 >= *before);
    }
    found
}

#[tokio::test]
async fn after_a_takeover_every_conversation_goes_home() {
    for policy in ["cost", "session"] {
        assert_eq!(found_again(policy, true).await, TALKS, "{policy}");
        // As after any restart.
        let cold = found_again(policy, false).await;
        eprintln!("{policy}: {TALKS} of {TALKS} after a takeover, {cold} after a restart");
        assert!(cold < TALKS, "{policy}: {cold} of {TALKS} found their way without being told");
    }
}

#[tokio::test]
async fn a_successor_with_another_key_begins_with_nothing_and_serves() {
    let engines = [SimEngine::start(engine(Persona::Vllm)).expect("a free port")];
    let door = Scratch::new();
    let text = text(&door, "cost", &engines);
    let mut old = ready(Process::start(TEST, &text).await).await;
    let keyed = text.replace("[routing]", "[routing]\nfingerprint_key = \"0123456789abcdef\"");
    let new = Launched::successor(TEST, &keyed).serves().await;
    assert!(new.wrote("stderr").contains("of no use here"), "{}", new.wrote("stderr"));
    assert!(old.ended().await.success());
    let mut talk = Talk::new(new.listen, "hello").await;
    talk.say("still there?").await;
}
