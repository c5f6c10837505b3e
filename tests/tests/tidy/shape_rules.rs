//! Rules on the shape of files and functions.

use crate::rules;

rules! {
    #[test]
    fn files_begin_with_a_purpose(tests::tidy::shape::files_begin_with_a_purpose)
    broken_by {
        [("a.rs", "fn f() {}\n//! too late\n")]
        [("a.rs", "")]
        [("a.rs", "//!\n")]
        [("a.rs", "//! To be written.\n")]
    }
    kept_by {
        [("a.rs", "//! Why.\n"), ("b.toml", "x = 1")]
    }

    #[test]
    fn no_file_is_over_600_lines(tests::tidy::shape::files_are_short)
    broken_by {
        [("a.rs", &"\n".repeat(601))]
    }
    kept_by {
        [("a.rs", &"\n".repeat(600)), ("b.md", &"\n".repeat(601))]
    }

    #[test]
    fn no_function_is_over_70_lines(tests::tidy::shape::functions_are_short)
    broken_by {
        [("a.rs", &super::function(71))]
    }
    kept_by {
        [("a.rs", &super::function(70))]
    }

    #[test]
    fn the_median_function_is_under_10_lines(
        tests::tidy::shape::the_median_function_is_a_few_lines
    )
    broken_by {
        [("a.rs", &super::function(10))]
    }
    kept_by {
        [("a.rs", &(super::function(10) + "fn b() {} fn c() {}"))]
    }
}

/// A function of this many lines, its braces included.
fn function(lines: usize) -> String {
    format!("fn a() {{{}}}", "\n".repeat(lines - 1))
}
