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
    page_of(folder, &["--policy", "cost,sglang-cli"])
}

fn page_of(folder: &Folder, more: &[&str]) -> PathBuf {
    let path = folder.0.join("page.html");
    let shown = path.to_str().unwrap();
    let line = ["arena", "--trace", "generated", "--backends", "2", "--sessions-per-backend", "2"];
    let rest = ["--until", "60", "--html", shown];
    arena::main(&Args::parse_from(line.iter().chain(&rest).chain(more))).unwrap();
    path
}

/// What the page carries.
fn board(page: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(page).unwrap();
    let (_, data) = text.split_once("id=\"data\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let boards: serde_json::Value = serde_json::from_str(data).unwrap();
    boards[0].clone()
}

/// The one point of the grid at which a policy's sliders begin.
fn beginning<'b>(board: &'b serde_json::Value, policy: &str) -> &'b serde_json::Value {
    let points = board["grid"].as_array().unwrap();
    let of = |point: &&serde_json::Value| point["policy"] == policy && point["set"] == true;
    let found: Vec<_> = points.iter().filter(of).collect();
    assert_eq!(found.len(), 1, "{policy} begins in one place");
    found[0]
}

#[test]
fn sliders_begin_at_what_the_policies_beside_them_are_run_with() {
    let folder = Folder::new("page-begins");
    let board = board(&page_of(&folder, &["--policy", "cost,prefix"]));
    for run in board["runs"].as_array().unwrap() {
        let policy = run["policy"].as_str().unwrap();
        let point = &beginning(&board, policy)["row"];
        for figure in ["hit", "ttft_mean", "ttft_p99", "done"] {
            assert_eq!(point[figure], run[figure], "{figure} of {policy}");
        }
    }
}

#[test]
fn sliders_begin_at_configured_weights_even_where_the_grid_has_none() {
    let folder = Folder::new("page-configured");
    let config = folder.0.join("shearwater.toml");
    let text = "[[backend]]\nurl = \"http://127.0.0.1:1\"\n[routing]\na_max = 5.5\n";
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let board = board(&page_of(&folder, &["--policy", "prefix", "--config", config]));
    let weights = &beginning(&board, "cost")["weights"];
    assert_eq!(*weights, serde_json::json!([["a_max", 5.5], ["request_charge_tokens", 100.0]]));
    let row = &board["runs"].as_array().unwrap()[1];
    assert_eq!(row["policy"], "configured");
    assert_eq!(beginning(&board, "cost")["row"]["ttft_mean"], row["ttft_mean"]);
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
