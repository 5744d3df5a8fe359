//! `terrace verify` as a process of its own, so that the load continues meanwhile.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

/// So many problems are kept as text.
const EXAMPLES: usize = 8;

/// How often everything was verified, and what that found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verifies {
    /// Of a node that ran, under load.
    pub running: u64,
    /// Of what a node left in its files: killed, or in the end stopped.
    pub files: u64,
    /// Those that found something wrong.
    pub damaged: u64,
    /// What, the first of it.
    pub examples: Vec<String>,
}

impl Verifies {
    pub(super) fn note(&mut self, problems: Vec<String>) {
        self.damaged += u64::from(!problems.is_empty());
        self.examples.extend(problems);
        self.examples.truncate(EXAMPLES);
    }
}

/// One that runs.
pub(super) struct Verify {
    child: Child,
    output: PathBuf,
}

impl Verify {
    /// Starts it on the node's data.
    pub(super) fn spawn(program: &Path, data: &Path) -> anyhow::Result<Verify> {
        let output = data.join("verify.json");
        let file = File::create(&output).with_context(|| format!("making {}", output.display()))?;
        let child = Command::new(program)
            .arg("verify")
            .arg(data)
            .arg("--json")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Verify { child, output })
    }

    /// What is wrong, once it has ended; an empty list is the good answer.
    pub(super) fn poll(&mut self) -> anyhow::Result<Option<Vec<String>>> {
        let Some(status) = self.child.try_wait()? else { return Ok(None) };
        let text = fs::read_to_string(&self.output)?;
        Ok(Some(problems(status.code(), &text)))
    }
}

impl Drop for Verify {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What an exit code and an answer say is wrong. What is no such answer is wrong itself.
fn problems(code: Option<i32>, text: &str) -> Vec<String> {
    let answer: Option<Value> = serde_json::from_str(text).ok();
    let sound = answer.as_ref().and_then(|answer| answer["sound"].as_bool());
    if (code, sound) == (Some(0), Some(true)) {
        return Vec::new();
    }
    let told: Vec<String> = answer
        .iter()
        .flat_map(|answer| answer["problems"].as_array().into_iter().flatten())
        .filter_map(|problem| problem.as_str().map(str::to_owned))
        .collect();
    if told.is_empty() { vec![format!("terrace verify ended with {code:?}: {}", text.trim())] } else { told }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sound_answer_with_exit_code_0_is_clean() {
        let sound = r#"{"sound": true, "problems": []}"#;
        assert!(problems(Some(0), sound).is_empty());
        for (code, text, told) in [
            (Some(1), sound, "ended with Some(1)"),
            (Some(1), r#"{"sound": false, "problems": ["page 7"]}"#, "page 7"),
            (Some(2), "error: nobody answers", "nobody answers"),
            (Some(0), "", "ended with Some(0)"),
            (None, "", "ended with None"),
        ] {
            let problems = problems(code, text);
            assert!(problems.len() == 1 && problems[0].contains(told), "{problems:?}");
        }
    }
}
