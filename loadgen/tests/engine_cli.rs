//! The command line of one engine.

mod engine_support;

use clap::Parser;
use loadgen::engine::cli::{EngineArgs, EngineCliError};
use loadgen::engine::{CutHow, Persona};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    engine: EngineArgs,
}

fn parsed(line: &str) -> EngineArgs {
    Line::try_parse_from(std::iter::once("x").chain(line.split_whitespace()))
        .expect("it parses")
        .engine
}

#[test]
fn arguments_become_options() {
    let options = parsed(
        "--persona llamacpp --listen 127.0.0.1:0 --model house --slots 4 --kv-tokens 65536 --prefill-tps 1000 \
         --decode-tps 20 --speed 2 --reply-min 5 --reply-max 9 --split-kv --fault-cut-after 3 --fault-cut-how reset",
    )
    .options()
    .unwrap();
    assert_eq!((options.persona, options.model.as_str()), (Persona::LlamaCpp, "house"));
    assert_eq!((options.params.slots, options.params.kv_tokens()), (4, 65_536));
    assert_eq!((options.params.prefill_tps, options.params.decode_tps), (2_000.0, 40.0));
    assert_eq!(options.sequence_tokens_max(), 16_384, "a slot's share");
    assert_eq!((options.reply.min, options.reply.max), (5, 9));
    let cut = options.faults.cut.unwrap();
    assert_eq!((cut.after_events, cut.how), (3, CutHow::Reset));
}

#[test]
fn defaults_are_those_of_a_demo() {
    let options = parsed("").options().unwrap();
    assert_eq!(options.persona, Persona::Vllm);
    assert_eq!((options.params.prefill_tps, options.params.decode_tps), (8_000.0, 40.0));
    assert_eq!((options.params.slots, options.params.kv_tokens()), (64, 512_000));
    assert_eq!(options.faults, loadgen::engine::Faults::default());
}

#[test]
fn speeds_must_be_above_zero() {
    for (line, name) in [
        ("--speed 0", "--speed"),
        ("--prefill-tps -1", "--prefill-tps"),
        ("--decode-tps nan", "--decode-tps"),
        ("--fault-slow-factor 0", "--fault-slow-factor"),
    ] {
        let line = line.replace(' ', "=");
        match parsed(&line).options() {
            Err(EngineCliError::NotPositive(told)) => assert_eq!(told, name),
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn an_unknown_persona_is_refused() {
    let error = Line::try_parse_from(["x", "--persona", "gpt"]).unwrap_err().to_string();
    assert!(error.contains("llamacpp"), "{error}");
    assert!("gpt".parse::<Persona>().is_err());
    assert_eq!("vllm".parse(), Ok(Persona::Vllm));
}
