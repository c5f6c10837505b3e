//! The house rules, each kept by this repository and each shown to be one that can be broken.
//!
//! A rule is listed with trees that break it and trees that keep it, so it becomes three tests:
//! `name::holds_here`, `name::is_broken_by_bad_files`, `name::is_kept_by_good_files`. Bad files
//! here are strings, which the rules about code do not see; words a rule about text would see are
//! put together by `concat!`.

use std::sync::LazyLock;

use tests::tidy::{Finding, Tree, listed};

mod document_rules;
mod name_rules;
mod purity_rules;
mod safety_rules;
mod shape_rules;

/// Files given as path and text.
type Files<'a> = &'a [(&'a str, &'a str)];

static HERE: LazyLock<Tree> = LazyLock::new(Tree::of_workspace);

/// Makes the three tests of each rule.
macro_rules! rules {
    ($(
        #[test]
        fn $name:ident($rule:path)
        broken_by { $([$($bad:tt)*])+ }
        kept_by { $([$($good:tt)*])+ }
    )+) => {
        $(mod $name {
            #[test]
            fn holds_here() {
                $crate::holds(stringify!($name), $rule);
            }

            #[test]
            fn is_broken_by_bad_files() {
                $($crate::is_broken($rule, &[$($bad)*]);)+
            }

            #[test]
            fn is_kept_by_good_files() {
                $($crate::is_kept($rule, &[$($good)*]);)+
            }
        })+
    };
}
pub(crate) use rules;

#[track_caller]
fn holds(name: &str, rule: fn(&Tree) -> Vec<Finding>) {
    let findings = rule(&HERE);
    assert!(findings.is_empty(), "{name}: {} found{}", findings.len(), listed(&findings));
}

#[track_caller]
fn is_broken(rule: fn(&Tree) -> Vec<Finding>, files: Files<'_>) {
    assert_ne!(rule(&Tree::of(files)), [], "nothing was found in {files:?}");
}

#[track_caller]
fn is_kept(rule: fn(&Tree) -> Vec<Finding>, files: Files<'_>) {
    let findings = rule(&Tree::of(files));
    assert!(findings.is_empty(), "found in {files:?}:{}", listed(&findings));
}

#[test]
fn the_rules_see_the_whole_repository() {
    for name in tests::tidy::purity::CRATES {
        let roots = ["lib.rs", "main.rs"].map(|root| format!("{name}/src/{root}"));
        assert!(roots.iter().any(|root| HERE.file(root).is_some()), "no root of {name} was read");
        assert!(HERE.file(&format!("{name}/Cargo.toml")).is_some(), "no manifest of {name}");
    }
    for path in ["ARCHITECTURE.md", "README.md", "Cargo.toml", ".ci/run", "deny.toml"] {
        assert!(HERE.file(path).is_some(), "{path} was not read");
    }
    assert!(HERE.files.iter().all(|file| !file.path.starts_with("target/")));
}

#[test]
fn files_listed_by_a_rule_exist() {
    use tests::tidy::{literals::STATUS_FILES, safety::UNSAFE_FILES};
    let listed = UNSAFE_FILES.iter().chain(STATUS_FILES.iter());
    let exists = |path: &str| HERE.files.iter().any(|file| file.path.starts_with(path));
    let absent: Vec<_> = listed.filter(|(path, _)| !exists(path)).collect();
    assert!(absent.is_empty(), "take them off the list, or mend the path: {absent:?}");
}

#[test]
fn the_shape_of_all_functions_is_reported() {
    use tests::tidy::shape::{function_lines, percentile};
    let lines = function_lines(&HERE);
    let [median, ninety, longest] = [50, 90, 100].map(|percent| percentile(&lines, percent));
    println!(
        "{} functions in {} Rust files: median {median} lines, 90 % up to {ninety}, longest {longest}",
        lines.len(),
        HERE.rust().count(),
    );
    assert!(lines.len() > 100, "the scanner lost the functions");
}
