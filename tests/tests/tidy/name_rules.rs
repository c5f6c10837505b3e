//! Rules on words, on leftovers, and on places that are not ours.

use crate::rules;

rules! {
    #[test]
    fn names_use_the_words_of_the_field(tests::tidy::names::names_use_the_fields_words)
    broken_by {
        [("proxy/src/worker.rs", "//! Why.")]
        [("proxy/src/utils/mod.rs", "//! Why.")]
        [("proxy/src/a.rs", "pub struct PoolManager;")]
        [("proxy/src/a.rs", "pub(crate) enum Context { A }")]
        [("proxy/src/a.rs", "mod session_util;")]
        [("proxy/src/a.rs", "fn spawn_worker() {}")]
        [("proxy/src/a.rs", "struct Node<T>(T);")]
    }
    kept_by {
        [("index/src/tree/node.rs", "pub(crate) struct Node;")]
        [("proxy/src/a.rs", "fn context_tokens() {}")]
        [("proxy/src/network.rs", "fn f() { builder.worker_threads(1); }")]
        [("proxy/src/a.rs", "use std::task::Context; fn poll(cx: &mut Context<'_>) {}")]
        [("proxy/src/a.rs", "// a worker\nconst A: &str = \"struct Manager\";")]
    }

    #[test]
    fn the_root_holds_only_what_belongs_there(
        tests::tidy::names::the_root_holds_only_what_belongs_there
    )
    broken_by {
        [("NOTES.md", "")]
        [("scripts/a.sh", "")]
    }
    kept_by {
        [("README.md", ""), ("proxy/src/lib.rs", ""), (".ci/run", "")]
    }

    #[test]
    fn nothing_is_left_over_from_work(tests::tidy::names::nothing_is_left_over_from_work)
    broken_by {
        [("a.rs", "fn f() { dbg!(1); }")]
        [("a.rs", "fn f() { todo!() }")]
        [("a.rs", concat!("// TO", "DO: more"))]
        [("README.md", concat!("FIX", "ME"))]
    }
    kept_by {
        [("a.rs", "// no dbg! here, and no Todo\nconst A: &str = \"TodoWrite\"; // todo!")]
        [("a.rs", "fn todo_list() {}")]
    }

    #[test]
    fn only_output_modules_print(tests::tidy::names::only_output_modules_print)
    broken_by {
        [("proxy/src/relay.rs", "fn f() { println!(\"x\"); }")]
        [("loadgen/src/main.rs", "fn f() { eprint!(\"x\"); }")]
    }
    kept_by {
        [("loadgen/src/report/output.rs", "fn f() { println!(\"x\"); }")]
        [("proxy/src/say.rs", "fn f() { println!(\"x\"); }")]
        [("proxy/src/relay.rs", "#[cfg(test)]\nmod tests { fn f() { println!(\"x\"); } }")]
        [("proxy/src/relay.rs", "fn f() { writeln!(out, \"println!\"); }")]
        [("tests/tests/sim.rs", "fn f() { println!(\"x\"); }")]
    }

    #[test]
    fn ignored_tests_say_why(tests::tidy::names::ignored_tests_say_why)
    broken_by {
        [("tests/tests/a.rs", "#[test]\n#[ignore]\nfn f() {}")]
    }
    kept_by {
        [("tests/tests/a.rs", "#[test]\n#[ignore = \"takes an hour\"]\nfn f() {}")]
        [("tests/tests/a.rs", "// #[ignore]\nfn f() {}")]
    }

    #[test]
    fn no_path_of_a_machine_is_named(tests::tidy::names::no_path_of_a_machine_is_named)
    broken_by {
        [("a.rs", concat!("const A: &str = \"/wo", "rk/x\";"))]
        [(".ci/run", concat!("cd /ro", "ot/x"))]
        [("README.md", concat!("see /tmp", "/target"))]
    }
    kept_by {
        [("a.rs", "const A: &str = \"/network/x\";"), (".ci/run", "cd \"$HOME\"")]
    }

    #[test]
    fn no_registry_host_is_named(tests::tidy::names::no_registry_host_is_named)
    broken_by {
        [("Cargo.toml", concat!("index = \"https://index.crates", ".io/\""))]
        [(".ci/run", concat!("pip install -i https://py", "pi.org/simple"))]
    }
    kept_by {
        [("Cargo.lock", concat!("source = \"registry+https://github.com/rust-lang/crates", ".io-index\""))]
        [(".ci/run", "cargo install cargo-fuzz --locked")]
    }
}
