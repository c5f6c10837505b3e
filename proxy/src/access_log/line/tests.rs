//! Lines in full, and their spelling beside a serialiser's.

use index::{BackendId, ConversationKey};

use super::*;
use crate::api::Api;
use crate::record::End;
use crate::usage::Usage;

fn record() -> Record {
    let what = (Api::ChatCompletions, "POST", "/v1/chat/completions".into());
    let refused = Record::of_head(0xabc, 3, what, Micros(1_000));
    let times = Times { end: Micros(1_000), ..refused.times };
    Record { status: 503, times, reply_bytes: 120, ..refused }
}

fn served() -> Record {
    let at = |micros: u64| Some(Micros(1_000 + micros));
    Record {
        model: Some("m \"quoted\"\n".into()),
        backend: Some(BackendId(0)),
        status: 200,
        end: End::Complete,
        attempts: 1,
        times: Times {
            head: Micros(1_000),
            body: at(7),
            placed: at(20),
            connected: at(300),
            sent: at(1_000),
            reply_head: at(50_120),
            first_byte: at(60_001),
            end: Micros(101_000),
        },
        waited_ms: 5,
        request_bytes: 6_000,
        streamed: true,
        events: 9,
        prompt_tokens_estimate: 1_280,
        usage: Some(Usage { prompt_tokens: 1_281, cached_tokens: Some(320), output_tokens: 7 }),
        conversation: Some(ConversationKey(0x1234_5678_9abc_def0)),
        ..record()
    }
}

fn line(format: LogFormat, record: &Record) -> String {
    let mut out = Vec::new();
    let upstreams = [Upstream::new("a", "127.0.0.1:9")];
    append(&mut out, format, &mut Stamper::default(), record, 1_795_953_697_980, &upstreams);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_served_request_is_told_in_full() {
    assert_eq!(
        line(LogFormat::Json, &served()),
        concat!(
            r#"{"time":"2026-11-29T12:01:37.980Z","request_id":"req_0000000000000abc","method":"POST","#,
            r#""path":"/v1/chat/completions","api":"chat_completions","model":"m \"quoted\"\n","backend":"a","#,
            r#""status":200,"end":"complete","attempts":1,"conversation":"12345678","#,
            r#""body_ms":0.007,"placed_ms":0.02,"connected_ms":0.3,"sent_ms":1.0,"reply_head_ms":50.12,"#,
            r#""first_byte_ms":60.001,"end_ms":100.0,"waited_ms":5,"request_bytes":6000,"reply_bytes":120,"#,
            r#""streamed":true,"events":9,"prompt_tokens_estimated":1280,"prompt_tokens":1281,"#,
            r#""output_tokens":7,"cached_tokens":320,"shard":3}"#,
            "\n"
        )
    );
    assert_eq!(
        line(LogFormat::Text, &served()),
        concat!(
            "time=2026-11-29T12:01:37.980Z request_id=req_0000000000000abc method=POST ",
            "path=/v1/chat/completions api=chat_completions model=\"m \\\"quoted\\\"\\n\" backend=a ",
            "status=200 end=complete attempts=1 conversation=12345678 ",
            "body_ms=0.007 placed_ms=0.02 connected_ms=0.3 sent_ms=1.0 reply_head_ms=50.12 ",
            "first_byte_ms=60.001 end_ms=100.0 waited_ms=5 request_bytes=6000 reply_bytes=120 ",
            "streamed=true events=9 prompt_tokens_estimated=1280 prompt_tokens=1281 ",
            "output_tokens=7 cached_tokens=320 shard=3\n"
        )
    );
}

#[test]
fn what_did_not_happen_is_left_out() {
    assert_eq!(
        line(LogFormat::Json, &record()),
        concat!(
            r#"{"time":"2026-11-29T12:01:37.980Z","request_id":"req_0000000000000abc","method":"POST","#,
            r#""path":"/v1/chat/completions","api":"chat_completions","status":503,"end":"own_answer","#,
            r#""attempts":0,"end_ms":0.0,"waited_ms":0,"request_bytes":0,"reply_bytes":120,"#,
            r#""streamed":false,"events":0,"prompt_tokens_estimated":0,"shard":3}"#,
            "\n"
        )
    );
}

#[test]
fn every_word_of_ours_is_bare() {
    let decided = index::Reason::Nobody.name();
    let words = End::ALL.map(End::name).into_iter().chain(Api::ALL.map(Api::name)).chain([decided]);
    assert!(words.into_iter().all(is_bare));
    assert!(!is_bare("") && !is_bare("a b") && !is_bare("a=b") && !is_bare("é"));
}

#[test]
fn strings_are_escaped_as_a_serialiser_does() {
    let mut random = fastrand::Rng::with_seed(1);
    let odd = [
        '"', '\\', '/', '\n', '\r', '\t', '\u{8}', '\u{c}', '\u{0}', '\u{1f}', '\u{7f}', 'é', '😀',
    ];
    for _ in 0..20_000 {
        let length = random.usize(0..12);
        let pick = |random: &mut fastrand::Rng| match random.u8(0..3) {
            0 => odd[random.usize(0..odd.len())],
            1 => char::from(random.u8(0..128)),
            _ => random.char(..),
        };
        let value: String = (0..length).map(|_| pick(&mut random)).collect();
        let mut ours = vec![b'"'];
        escape_onto(&mut ours, &value);
        ours.push(b'"');
        assert_eq!(String::from_utf8(ours).unwrap(), serde_json::to_string(&value).unwrap());
    }
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "the moments told are below 2^50")]
fn moments_are_spelled_as_a_serialiser_does() {
    let mut random = fastrand::Rng::with_seed(2);
    let samples = (0..20_000).map(|_| random.u64(..) >> random.u32(14..64));
    for micros in samples.chain([0, 1, 10, 100, 999, 1_000, 1_010, MOMENT_MAX]) {
        let micros = micros.min(MOMENT_MAX);
        let mut out = Vec::new();
        LineWriter { out: &mut out, format: LogFormat::Text }.moment(
            key!("x"),
            Micros(5 + micros),
            Micros(5),
        );
        let serialised = serde_json::to_string(&(micros as f64 / 1000.0)).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!(" x={serialised}"));
    }
}
