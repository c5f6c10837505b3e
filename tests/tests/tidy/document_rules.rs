//! Rules on the architecture document, and on what others show of recorded figures.

use crate::rules;

rules! {
    #[test]
    fn the_readme_shows_the_recorded_table_of_peers(
        tests::tidy::documents::the_readme_shows_the_recorded_table_of_peers
    )
    broken_by {
        [("README.md", "| ours | 14.4 |\n")]
        [("bench/results/peers.md", "| ours | 14.4 |\n")]
        [("bench/results/peers.md", "| ours | 14.4 |\n"), ("README.md", "| ours | 14.3 |\n")]
        [("bench/results/peers.md", ""), ("README.md", "| ours | 14.4 |\n")]
    }
    kept_by {
        [("bench/results/peers.md", "| ours | 14.4 |\n"), ("README.md", "# A\n\n| ours | 14.4 |\n\nb\n")]
    }

    #[test]
    fn the_architecture_names_every_module(
        tests::tidy::documents::the_architecture_names_every_module
    )
    broken_by {
        [("index/src/tree.rs", "")]
        [("ARCHITECTURE.md", "# A\nindex has `tree.rs`\n"), ("index/src/tree.rs", "")]
        [("ARCHITECTURE.md", "## Code map\n### proxy\n`tree.rs`\n"), ("index/src/tree.rs", "")]
        [("ARCHITECTURE.md", "## Code map\n### index\n`head.rs`\n"), ("index/src/http/head.rs", "")]
        [("ARCHITECTURE.md", "## Code map\n### index\n`tree.rs`\n"), ("index/src/http/mod.rs", "")]
        [("ARCHITECTURE.md", "## Code map\n## Next\n### index\n`tree.rs`\n"), ("index/src/tree.rs", "")]
    }
    kept_by {
        [
            ("ARCHITECTURE.md", "## Code map\n### `index`: core\n- `tree.rs`: x\n- `http/{a,b}.rs`\n"),
            ("index/src/lib.rs", ""),
            ("index/src/tree.rs", ""),
            ("index/src/http/mod.rs", ""),
            ("index/src/http/a.rs", ""),
            ("index/src/http/b.rs", ""),
            ("index/tests/model.rs", "")
        ]
    }

    #[test]
    fn the_architecture_names_only_what_exists(
        tests::tidy::documents::the_architecture_names_only_what_exists
    )
    broken_by {
        [("ARCHITECTURE.md", "## Code map\n### index\n`tree.rs`\n")]
        [("ARCHITECTURE.md", "## Code map\n### index\n`http/`\n"), ("proxy/src/http/a.rs", "")]
    }
    kept_by {
        [("ARCHITECTURE.md", "## Code map\n### index\n`tree.rs`, `/metrics`, `Vec`, `tests/m.rs`\n"),
            ("index/src/tree.rs", ""), ("index/tests/m.rs", "")]
    }

    #[test]
    fn every_invariant_names_its_test(tests::tidy::documents::every_invariant_names_its_test)
    broken_by {
        [("README.md", "")]
        [("ARCHITECTURE.md", "# A\n")]
        [("ARCHITECTURE.md", "## Invariants\nNone.\n")]
        [("ARCHITECTURE.md", "## Invariants\n1. It holds.\n")]
        [("ARCHITECTURE.md", "## Invariants\n1. It holds. test: holds\n")]
        [("ARCHITECTURE.md", "## Invariants\n1. It holds. test: `tests/a.rs::holds`\n")]
        [
            ("ARCHITECTURE.md", "## Invariants\n1. It holds. test: `tests/a.rs::holds`\n"),
            ("tests/a.rs", "fn holds() {}")
        ]
        [
            ("ARCHITECTURE.md", "## Invariants\n1. It holds. test: `tests/a.rs::holds`, `tests/a.rs::b`\n"),
            ("tests/a.rs", "#[test]\nfn holds() {}")
        ]
    }
    kept_by {
        [
            ("ARCHITECTURE.md", "## Invariants\n1. It holds,\n   always. test: `tests/a.rs::holds`\n\n## B\n- c\n"),
            ("tests/a.rs", "#[tokio::test]\n#[should_panic]\nasync fn holds() {}")
        ]
        [
            ("ARCHITECTURE.md", "### Invariants\n- It holds. test: `a/src/b.rs::tests::holds`\n"),
            ("a/src/b.rs", "mod tests { #[test] fn holds() {} }")
        ]
    }
}
