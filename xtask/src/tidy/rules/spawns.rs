//! Spawns: a panic of a node's thread or task must be reported, so each is started through a helper that catches the
//! panic.

use crate::tidy::report::Finding;
use crate::tidy::tree::Tree;

/// The folders with the code of a node.
const FOLDERS: &[&str] = &["crates/storage/", "crates/node/", "crates/services/", "crates/terrace/src/"];

/// The helper, and files that wait for the threads or tasks they start, or end the program after a panic.
const ALLOWED: &[&str] = &[
    "crates/node/src/task.rs",
    "crates/services/sql/src/wire/session_thread.rs",
    "crates/services/sql/src/wire/server.rs",
    "crates/storage/store/src/checkpoint/writer.rs",
];

/// Functions that start a thread or a task without the helper.
const STARTS: &[&str] = &["thread::spawn(", "thread::Builder", "tokio::spawn("];

/// Reports threads and tasks that are started without the helper.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in tree.rust() {
        let is_node = FOLDERS.iter().any(|folder| file.path.starts_with(folder)) && file.path.contains("/src/");
        let is_test = file.path.contains("/tests") || ALLOWED.contains(&file.path.as_str());
        if !is_node || is_test {
            continue;
        }
        let tests = source.test_lines();
        for start in STARTS {
            let lines = source.code.match_indices(start).map(|(at, _)| source.line_of(at));
            for line in lines.filter(|line| !tests.iter().any(|lines| lines.contains(line))) {
                let mend = "start it with device::supervise::thread, or supervised or session of node::task";
                findings.push(Finding::new(&file.path, line, "its panic would not be reported", mend));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::report::found;

    #[test]
    fn a_thread_and_a_task_that_nobody_watches_are_found_and_those_of_helpers_and_tests_pass() {
        let code = "fn f() {\n    std::thread::spawn(g);\n    tokio::spawn(h());\n}\n";
        let files = [
            ("crates/storage/a/src/b.rs", code),
            ("crates/storage/a/src/tests.rs", code),
            ("crates/storage/a/examples/b.rs", code),
            ("crates/node/src/task.rs", code),
            ("crates/node/src/b.rs", "#[cfg(test)]\nmod tests {\n    fn f() {\n        tokio::spawn(h());\n    }\n}\n"),
            ("crates/media/device/src/supervise.rs", code),
        ];
        let expected = [
            "crates/storage/a/src/b.rs:2: its panic would not be reported",
            "crates/storage/a/src/b.rs:3: its panic would not be reported",
        ];
        assert_eq!(found(check, &files), expected);
    }
}
