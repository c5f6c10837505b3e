//! The repository's files as the rules see them.
//!
//! Files come from git: tracked, or new and not ignored. Without git the folders are walked,
//! leaving out what is built.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::layers::Layers;

/// One text file.
#[derive(Clone, Debug)]
pub struct File {
    /// Path from the root of the repository, with `/`.
    pub path: String,
    /// What is in it.
    pub text: String,
    /// The text's layers; empty for what is not Rust.
    pub layers: Layers,
    /// The code without test items; empty for what is not Rust and for test files.
    pub shipped: String,
}

impl File {
    /// A file with this content.
    pub fn new(path: &str, text: &str) -> Self {
        let mut file = Self {
            path: path.to_owned(),
            text: text.to_owned(),
            layers: Layers::default(),
            shipped: String::new(),
        };
        if file.is_rust() {
            file.layers = Layers::of(text);
        }
        if !file.is_test() {
            file.shipped = file.layers.shipped();
        }
        file
    }

    /// Whether this is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The file's name without its ending.
    pub fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        name.split_once('.').filter(|(stem, _)| !stem.is_empty()).map_or(name, |(stem, _)| stem)
    }

    /// Whether only tests, benchmarks or fuzzers run this file.
    pub fn is_test(&self) -> bool {
        let folders = ["tests", "benches", "fuzz"];
        let mut parts = self.path.split('/');
        parts.any(|part| folders.contains(&part))
            || self.stem() == "tests"
            || self.stem().ends_with("_tests")
    }

    /// Whether the file is `folder/name.rs` or anything in `folder/name/`.
    pub fn is_module(&self, folder: &str, name: &str) -> bool {
        let rest = self.path.strip_prefix(folder).and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    }
}

/// All text files of a repository, in the order of their paths.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The files.
    pub files: Vec<File>,
}

impl Tree {
    /// A repository of exactly these files, given as path and text.
    pub fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| File::new(path, text)).collect() }
    }

    /// The repository this test runs in, as cargo says; else the one it was built from.
    pub fn of_workspace() -> Self {
        let built = || env!("CARGO_MANIFEST_DIR").to_owned();
        let crate_folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| built());
        let root = Path::new(&crate_folder).parent().expect("a crate has a workspace");
        let mut paths = listed_by_git(root).unwrap_or_else(|| walked(root));
        paths.sort();
        let read = |path: &String| {
            // What is not text, or is deleted but still tracked, is no business of the rules.
            let text = std::fs::read_to_string(root.join(path)).ok()?;
            Some(File::new(path, &text))
        };
        Self { files: paths.iter().filter_map(read).collect() }
    }

    /// The Rust files.
    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }

    /// The Rust files below a folder, given with its final `/`.
    pub fn rust_in(&self, folder: &str) -> impl Iterator<Item = &File> {
        self.rust().filter(move |file| file.path.starts_with(folder))
    }

    /// The file at a path.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    let list = String::from_utf8(output.stdout).ok()?;
    let mut paths: Vec<String> =
        list.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    paths.dedup();
    (output.status.success() && !paths.is_empty()).then_some(paths)
}

fn walked(root: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(root.join(&folder)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = folder.join(&name);
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !is_left_out(&name) => folders.push(path),
                Ok(kind) if kind.is_file() => paths.push(path.to_string_lossy().into_owned()),
                _ => {}
            }
        }
    }
    paths
}

/// Folders of built things.
fn is_left_out(folder: &str) -> bool {
    ["target", ".git", "artifacts", "corpus", "coverage"].contains(&folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_and_the_walk_see_the_same_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let sources = |mut paths: Vec<String>| {
            paths.retain(|path| path.ends_with(".rs") && root.join(path).exists());
            paths.sort();
            paths
        };
        if let Some(listed) = listed_by_git(root) {
            assert_eq!(sources(walked(root)), sources(listed));
        }
    }

    #[test]
    fn files_know_what_they_are() {
        let file = |path| File::new(path, "");
        assert_eq!(file("index/src/tree.rs").stem(), "tree");
        assert_eq!(file(".gitignore").stem(), ".gitignore");
        assert!(file("index/tests/loom.rs").is_test() && file("proxy/src/http/tests.rs").is_test());
        assert!(!file("proxy/src/latests.rs").is_test());
        assert!(file("proxy/src/http/head.rs").is_module("proxy/src/", "http"));
        assert!(file("proxy/src/http.rs").is_module("proxy/src/", "http"));
        assert!(!file("proxy/src/httpd.rs").is_module("proxy/src/", "http"));
    }
}
