//! Bad files and bad command lines, and the exact message for each.

use config::Config;

/// A backend that nothing is wrong with, so that only the mistake under test is reported.
const BACKEND: &str = "\n[[backend]]\nurl = \"http://a:1\"\n";

fn message(text: &str) -> String {
    match Config::parse("sw.toml", text) {
        Ok(config) => panic!("accepted:\n{text}\n{config:#?}"),
        Err(error) => error.to_string(),
    }
}

/// Each line of text before the backend, and the message it must give.
#[track_caller]
fn refused(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(message(&format!("{text}{BACKEND}")), format!("sw.toml:{expected}"), "{text}");
    }
}

#[test]
fn unknown_keys_are_refused_with_a_suggestion() {
    refused(&[
        ("shard = 1", "1: shard: unknown key; did you mean `shards`?"),
        ("[timeout]", "1: timeout: unknown key; did you mean `timeouts`?"),
        (
            "[timeouts]\nconect_ms = 1",
            "2: timeouts.conect_ms: unknown key; did you mean `connect_ms`?",
        ),
        ("[log]\ncolour = 1", "2: log.colour: unknown key; known here: access, format, level"),
    ]);
}

#[test]
fn values_of_the_wrong_type_are_refused() {
    refused(&[
        ("shards = \"two\"", "1: shards = \"two\": must be a whole number, without quotes"),
        ("shards = 1.5", "1: shards = 1.5: must be a whole number"),
        ("passthrough = \"yes\"", "1: passthrough = \"yes\": must be true or false"),
        ("admin = 8081", "1: admin = 8081: must be a string in quotes"),
        ("listen = 8080", "1: listen = 8080: must be an address in quotes, or a list of such"),
        ("listen = [8080]", "1: listen = 8080: must be a list of strings: [\"...\"]"),
        ("routing = 1", "1: routing = 1: must be a table: [routing]"),
        ("[routing]\na_max = \"8\"", "2: routing.a_max = \"8\": must be a number, without quotes"),
    ]);
}

#[test]
fn a_takeover_socket_is_an_absolute_path_that_fits() {
    let reason = "must be an absolute path of at most 96 bytes";
    let long = format!("/{}", "x".repeat(96));
    let typed = format!("takeover_socket = \"{long}\"");
    let shown: String = format!("\"{long}\"").chars().take(60).collect();
    refused(&[
        ("takeover_socket = \"a.sock\"", &format!("1: takeover_socket = \"a.sock\": {reason}")),
        (&typed, &format!("1: takeover_socket = {shown}...: {reason}")),
        ("takeover_socket = 1", "1: takeover_socket = 1: must be a string in quotes"),
    ]);
}

#[test]
fn numbers_out_of_bounds_are_refused_with_the_reason() {
    refused(&[
        (
            "shards = 1025",
            "1: shards = 1025: must be 0 or from 1 to 1024: 0 is one per core this process may use",
        ),
        (
            "shards = -1",
            "1: shards = -1: must be 0 or from 1 to 1024: 0 is one per core this process may use",
        ),
        (
            "[timeouts]\nupstream_idle_ms = 5000",
            "2: timeouts.upstream_idle_ms = 5000: must be from 1 to 4999 ms: every engine closes \
             idle connections after 5000 ms, and a request sent then is lost",
        ),
        (
            "[timeouts]\nupstream_idle_ms = \"5s\"",
            "2: timeouts.upstream_idle_ms = \"5s\": must be from 1 to 4999 ms: every engine \
             closes idle connections after 5000 ms, and a request sent then is lost",
        ),
        (
            "[limits]\nbody_bytes_max = 99999999999999999999",
            "2: limits.body_bytes_max = 99999999999999999999: must be from 1024 to 4294967296 \
             bytes: a body is held in memory whole until an engine has it",
        ),
        ("[routing]\nblock_bytes = 100", "2: routing.block_bytes = 100: must be a multiple of 16"),
        (
            "[routing]\nblock_bytes = 256",
            "2: routing.block_bytes = 256: must be from 64 to 240 bytes: smaller blocks cost \
             memory and find nothing more, larger ones leave xxh3's short path",
        ),
        ("[routing]\na_max = 0.5", "2: routing.a_max = 0.5: must be from 1 to 1000"),
        ("[routing]\nweight_hit = nan", "2: routing.weight_hit = nan: must be from 0 to 1000"),
        ("[routing]\nweight_hit = -inf", "2: routing.weight_hit = -inf: must be from 0 to 1000"),
    ]);
}

#[test]
fn sizes_and_times_with_a_wrong_unit_are_refused() {
    refused(&[
        (
            "[limits]\nbody_bytes_max = \"64M\"",
            "2: limits.body_bytes_max = \"64M\": must be a size such as \"64MiB\" (units: B, KiB, \
             MiB, GiB, kB, MB, GB)",
        ),
        (
            "[timeouts]\nconnect_ms = \"3 seconds\"",
            "2: timeouts.connect_ms = \"3 seconds\": must be a duration such as \"2s\" (units: \
             ms, s, m, min, h)",
        ),
        (
            "[routing]\naffinity_idle_s = \"1500ms\"",
            "2: routing.affinity_idle_s = \"1500ms\": must be whole seconds",
        ),
    ]);
}

#[test]
fn names_that_are_no_choice_are_refused() {
    refused(&[
        ("unknown_model = \"drop\"", "1: unknown_model = \"drop\": must be one of reject, any"),
        (
            "[routing]\npolicy = \"best\"",
            "2: routing.policy = \"best\": must be one of round_robin, random, least_requests, \
             power_of_two, ewma, consistent_hash, session, prefix, cost",
        ),
        (
            "[log]\naccess = \"access.log\"",
            "2: log.access = \"access.log\": must be off, stdout, or the path of a file with a / \
             in it",
        ),
    ]);
}

#[test]
fn addresses_are_checked() {
    refused(&[
        (
            "listen = \"localhost:80\"",
            "1: listen = \"localhost:80\": must be an IP address and a port, such as 0.0.0.0:8080",
        ),
        ("listen = []", "1: listen: must be an address, or a list of at least one"),
        ("listen = [\"[::]:80\", \"[::]:80\"]", "1: listen = \"[::]:80\": given twice"),
        (
            "listen = \"0.0.0.0:8081\"",
            "1: admin = 127.0.0.1:8081: is taken by listen = \"0.0.0.0:8081\": clients must not \
             reach the admin address",
        ),
    ]);
}

#[test]
fn values_that_do_not_fit_together_are_refused() {
    refused(&[
        (
            "[routing]\nhome_wait_ms = 70_000",
            "2: routing.home_wait_ms = 70000: must not be above queue_wait_ms (60000)",
        ),
        (
            "[routing]\noutput_tokens_cap = 10\noutput_tokens_default = 11",
            "3: routing.output_tokens_default = 11: must not be above output_tokens_cap (10)",
        ),
        (
            "[timeouts]\ndrain_grace_ms = 9\ndrain_max_ms = 8",
            "2: timeouts.drain_grace_ms = 9: must not be above drain_max_ms (8)",
        ),
        (
            "[limits]\nbody_memory = \"1MiB\"\nbody_bytes_max = \"2MiB\"",
            "3: limits.body_bytes_max = 2097152: must not be above body_memory (1048576)",
        ),
    ]);
}

#[test]
fn session_headers_that_cannot_name_a_conversation_are_refused() {
    refused(&[
        (
            "[routing]\nsession_header = \"Host\"",
            "2: routing.session_header = \"Host\": this header belongs to the connection, not to the \
             request",
        ),
        (
            "[routing]\nsession_header = \"x session\"",
            "2: routing.session_header = \"x session\": must be a header name of 1 to 64 bytes",
        ),
    ]);
}

#[test]
fn secrets_are_not_repeated_in_errors() {
    refused(&[
        (
            "[routing]\nfingerprint_key = \"0123456789abcdeX\"",
            "2: routing.fingerprint_key = (hidden): must be a string of 16 hexadecimal digits",
        ),
        (
            "[routing]\nfingerprint_key = 42",
            "2: routing.fingerprint_key = (hidden): must be a string of 16 hexadecimal digits",
        ),
        (
            "[[backend]]\nurl = \"http://me:secret@b:1\"",
            "2: backend[1].url = (hidden): must have no user or password: requests keep the \
             client's own",
        ),
    ]);
}

#[test]
fn backends_are_checked() {
    refused(&[
        (
            "[[backend]]\nurl = \"https://b:1\"",
            "2: backend[1].url = \"https://b:1\": https to a backend is not supported: use http \
             in a trusted network",
        ),
        (
            "[[backend]]\nurl = \"http://b:1/v1\"",
            "2: backend[1].url = \"http://b:1/v1\": must have no path: requests keep the client's \
             own",
        ),
        (
            "[[backend]]\nname = \"b\"",
            "1: backend[1].url: missing: where the backend listens, as http://host:port",
        ),
        (
            "[[backend]]\nname = \"a:1\"\nurl = \"http://b:1\"",
            "4: backend[2].name: default a:1 is already used by backend[1].name",
        ),
        (
            "[[backend]]\nname = \"b c\"\nurl = \"http://b:1\"",
            "2: backend[1].name = \"b c\": must be letters, digits or any of . _ : - / [ ] @ +",
        ),
        (
            "[[backend]]\nurl = \"http://A:1/\"",
            "4: backend[2].url = \"http://a:1\": already given as backend[1].url: one server, \
             listed once, or its slots count twice",
        ),
        (
            "[[backend]]\nurl = \"http://b:1\"\nslots = 0",
            "3: backend[1].slots = 0: must be from 1 to 1048575: a backend runs at least one \
             request, and slots are counted in 20 bits",
        ),
        (
            "[[backend]]\nurl = \"http://b:1\"\ntags = [\"a\", \"a\"]",
            "3: backend[1].tags = \"a\": given twice",
        ),
        (
            "[[backend]]\nurl = \"http://b:1\"\nmodels = [\"\"]",
            "3: backend[1].models = \"\": must not be empty",
        ),
    ]);
}

#[test]
fn a_fleet_without_backends_or_of_the_wrong_shape_is_refused() {
    assert_eq!(
        message(""),
        "sw.toml:1: backend: missing: at least one [[backend]] with a url is needed"
    );
    assert_eq!(message("backend = [1]"), "sw.toml:1: backend[1] = 1: must be a table: [[backend]]");
    assert_eq!(
        message("[backend]\nurl = \"http://a:1\""),
        "sw.toml:1: backend = [backend]: must be a list of tables: [[backend]]"
    );
}

#[test]
fn more_backends_than_the_limit_are_refused_and_the_limit_is_accepted() {
    let fleet = |count: usize| -> String {
        (0..count).map(|port| format!("[[backend]]\nurl = \"http://a:{}\"\n", port + 1)).collect()
    };
    assert!(Config::parse("sw.toml", &fleet(config::BACKENDS_MAX)).is_ok());
    let expected = format!("sw.toml:1: backend: must be at most {} backends", config::BACKENDS_MAX);
    assert_eq!(message(&fleet(config::BACKENDS_MAX + 1)), expected);
}

#[test]
fn all_mistakes_of_a_file_are_shown_at_once_in_its_order() {
    let text = "shards = -1\n[timeouts]\nconnect_ms = 1\ncolour = 2\n[[backend]]\nurl = \"a\"\n";
    let found = message(text);
    let lines: Vec<&str> = found.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(lines, ["sw.toml:1", "sw.toml:3", "sw.toml:4", "sw.toml:6"]);
}

#[test]
fn a_file_full_of_mistakes_is_cut_after_fifty() {
    let text: String = (100..200).map(|index| format!("key{index} = 1\n")).collect();
    let found = message(&format!("{text}{BACKEND}"));
    assert_eq!(found.lines().count(), 51);
    assert_eq!(found.lines().last(), Some("sw.toml: and 50 more"));
}

#[test]
fn broken_toml_is_refused_with_all_its_lines() {
    let found = message("shards = \n[log]\nlevel = \"info\nformat = \"json\"\n");
    let lines: Vec<&str> = found.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(lines, ["sw.toml:1", "sw.toml:3"], "{found}");
    assert!(found.lines().all(|line| line.contains(": not valid TOML: ")), "{found}");
    let twice = message("shards = 1\nshards = 2\n");
    assert!(twice.starts_with("sw.toml:2: not valid TOML: "), "{twice}");
}

#[test]
fn hostile_text_is_an_error_and_never_a_panic() {
    for text in ["\0", "\u{feff}", "[[[[", "a.b.c.d = ", "= 1", "\"\\u{D800}\" = 1", "x = {"] {
        assert!(Config::parse("sw.toml", text).is_err(), "{text:?}");
    }
    let deep = format!("x = {}", "[".repeat(100_000));
    assert!(Config::parse("sw.toml", &deep).is_err());
}

#[test]
fn random_damage_to_a_valid_file_is_an_error_or_a_valid_file_and_never_a_panic() {
    const EXAMPLE: &str = include_str!("../example.toml");
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7_u64);
    let mut state = seed;
    let mut draw = |below: usize| {
        // Knuth's 64-bit linear congruential generator; the high bits are the good ones.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut refused = 0;
    for round in 0..300 {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        for _ in 0..=draw(4) {
            let at = draw(bytes.len());
            bytes[at] = b"\"[]{}=#\n.-0x_ a\\"[draw(16)];
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Err(error) = Config::parse("sw.toml", &text) {
            assert!(!error.problems().is_empty(), "seed {seed}, round {round}");
            refused += 1;
        }
    }
    assert!((1..300).contains(&refused), "seed {seed}: {refused} of 300 refused");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let path = std::env::temp_dir().join("shearwater-no-such-file.toml");
    let error = Config::load(&path).expect_err("there is no such file").to_string();
    assert!(error.starts_with(&format!("{}: cannot read: ", path.display())), "{error}");
}

#[test]
fn a_file_is_read_up_to_its_largest_size_and_not_beyond() {
    let path = std::env::temp_dir().join(format!("shearwater-size-{}.toml", std::process::id()));
    let mut text = format!("{BACKEND}#");
    let max = usize::try_from(config::FILE_BYTES_MAX).unwrap();
    text.push_str(&"x".repeat(max - text.len()));
    std::fs::write(&path, &text).unwrap();
    let at_limit = Config::load(&path);
    std::fs::write(&path, format!("{text}x")).unwrap();
    let above = Config::load(&path);
    std::fs::remove_file(&path).unwrap();
    assert!(at_limit.is_ok());
    let expected = format!("{}: cannot read: larger than {max} bytes", path.display());
    assert_eq!(above.expect_err("too large").to_string(), expected);
}

#[test]
fn a_command_line_is_checked_like_a_file() {
    let start = |urls: &[&str], listen: &[&str], admin: Option<&str>| {
        let listen: Vec<_> = listen.iter().map(|address| address.parse().unwrap()).collect();
        Config::from_backends(urls, &listen, admin.map(|address| address.parse().unwrap()))
            .map_err(|error| error.to_string())
    };
    let ok = start(&["http://a:1", "http://b:1"], &["127.0.0.1:0"], Some("127.0.0.1:0")).unwrap();
    assert_eq!(ok.backends[1].name, "b:1");
    assert_eq!((ok.listen[0].port(), ok.admin.port()), (0, 0));
    for (urls, listen, admin, expected) in [
        (
            &[][..],
            &[][..],
            None,
            "command line: --backend: must be given 1 to 16384 times, as http://host:port",
        ),
        (&["b:1"], &[], None, "command line: --backend = b:1: must start with http://"),
        (
            &["http://a:1", "http://a:1/"],
            &[],
            None,
            "command line: --backend = http://a:1/: given twice",
        ),
        (
            &["http://a:1"],
            &["0.0.0.0:8081"],
            None,
            "command line: --admin = 127.0.0.1:8081: is taken by listen = \"0.0.0.0:8081\": \
             clients must not reach the admin address",
        ),
    ] {
        assert_eq!(start(urls, listen, admin), Err(expected.to_owned()));
    }
}
