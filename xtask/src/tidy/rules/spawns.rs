//! Spawns: no thread and no task of a node ends in silence, so each is started through a helper that catches its panic.

use crate::tidy::report::Finding;
use crate::tidy::tree::Tree;

/// Where a node's code is.
const FOLDERS: &[&str] = &["crates/storage/", "crates/services/", "crates/terrace/src/"];

/// The helper, and who waits for what it starts, or has it end the program.
const ALLOWED: &[&str] = &[
    "crates/services/interop/src/supervise.rs",
    "crates/services/sql/src/wire/apart.rs",
    "crates/services/sql/src/wire/server.rs",
    "crates/storage/store/src/checkpoint/writer.rs",
];

/// How threads and tasks are started without it.
const STARTS: &[&str] = &["thread::spawn(", "thread::Builder", "tokio::spawn("];

/// Fires on a thread or a task that is started in another way.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in tree.rust() {
        let is_node = FOLDERS.iter().any(|folder| file.path.starts_with(folder)) && file.path.contains("/src/");
        let is_test = file.path.contains("/tests") || ALLOWED.contains(&file.path.as_str());
        if !is_node || is_test {
            continue;
        }
        for start in STARTS {
            for (at, _) in source.code.match_indices(start) {
                let mend =
                    "start it with device::supervise::thread, or supervised or session of the engine's supervise";
                findings.push(Finding::new(&file.path, source.line_of(at), "its panic would be told to nobody", mend));
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
            ("crates/services/interop/src/supervise.rs", code),
            ("crates/media/device/src/supervise.rs", code),
        ];
        let expected = [
            "crates/storage/a/src/b.rs:2: its panic would be told to nobody",
            "crates/storage/a/src/b.rs:3: its panic would be told to nobody",
        ];
        assert_eq!(found(check, &files), expected);
    }
}
