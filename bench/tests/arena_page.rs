//! The page: whole in itself, and drawn by a real browser where one is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use bench::arena::{self, args::Args};
use clap::Parser;

/// A folder of this test's own, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A page of two policies on generated sessions.
fn page(folder: &Folder) -> PathBuf {
    let path = folder.0.join("page.html");
    let shown = path.to_str().unwrap();
    let line = ["arena", "--trace", "generated", "--backends", "2", "--sessions-per-backend", "2"];
    let rest = ["--until", "60", "--policy", "cost,sglang-cli", "--html", shown];
    arena::main(&Args::parse_from(line.iter().chain(&rest))).unwrap();
    path
}

#[test]
fn the_page_asks_for_nothing_from_anywhere() {
    let folder = Folder::new("page-alone");
    let text = std::fs::read_to_string(page(&folder)).unwrap();
    let without_names = text.replace("http://www.w3.org/2000/svg", "");
    for asks in ["http:", "https:", "src=", "<link", "@import", "url(", "fetch(", "import("] {
        assert!(!without_names.contains(asks), "{asks}");
    }
    assert!(!text.contains("/*"), "everything was filled in");
}

#[test]
fn a_browser_draws_every_policy_and_chooses_among_the_grids_runs() {
    let folder = Folder::new("page-drawn");
    let page = page(&folder);
    let profile = format!("--user-data-dir={}", folder.0.join("profile").display());
    let flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"];
    let mut browser = Command::new("chromium");
    browser.args(flags).arg(profile).args(["--virtual-time-budget=5000", "--dump-dom"]).arg(page);
    let Ok(output) = browser.output() else {
        return bench::complain("SKIPPED: no chromium to draw the page with");
    };
    let drawn = String::from_utf8_lossy(&output.stdout);
    let count = |what: &str| drawn.matches(what).count();
    assert_eq!(count("<tr aria-selected=\"true\">"), 2, "both policies are rows and drawn");
    assert!(count("<path class=\"curve\"") >= 8, "two curves in each of four charts");
    assert_eq!(count("type=\"range\""), 5, "two weights of one policy, three of the other");
    assert!(drawn.contains("this page carries <span id=\"points\">83</span> runs"));
}
