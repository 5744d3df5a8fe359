//! What a check found, and what to do about it. Pure data, as text and as JSON.

use serde::Serialize;

/// How bad it is. The order is that of the exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    /// As it should be.
    Fine,
    /// It could not be found out, and why.
    Unknown,
    /// A node runs with it; somebody should know it.
    Warning,
    /// A node does not run with it, or loses or shows data.
    Problem,
}

impl FindingState {
    /// Its word in the table.
    pub fn word(self) -> &'static str {
        match self {
            FindingState::Fine => "fine",
            FindingState::Unknown => "unknown",
            FindingState::Warning => "warning",
            FindingState::Problem => "problem",
        }
    }
}

/// A finding of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check, as programs name it: `data-directory`.
    pub check: &'static str,
    /// How bad it is.
    pub state: FindingState,
    /// What was found, in words.
    pub found: String,
    /// What to do, with a command where there is one; none where it is fine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// All findings, in the order of the checks.
#[derive(Debug, Default, Serialize)]
pub struct FindingList {
    findings: Vec<Finding>,
}

impl FindingList {
    /// It is as it should be.
    pub fn fine(&mut self, check: &'static str, found: impl Into<String>) {
        self.findings.push(Finding { check, state: FindingState::Fine, found: found.into(), next: None });
    }

    /// It could not be found out.
    pub fn unknown(&mut self, check: &'static str, found: impl Into<String>) {
        self.findings.push(Finding { check, state: FindingState::Unknown, found: found.into(), next: None });
    }

    /// A node runs with it.
    pub fn warning(&mut self, check: &'static str, found: impl Into<String>, next: impl Into<String>) {
        self.findings.push(Finding {
            check,
            state: FindingState::Warning,
            found: found.into(),
            next: Some(next.into()),
        });
    }

    /// A node does not run with it, or not safely.
    pub fn problem(&mut self, check: &'static str, found: impl Into<String>, next: impl Into<String>) {
        self.findings.push(Finding {
            check,
            state: FindingState::Problem,
            found: found.into(),
            next: Some(next.into()),
        });
    }

    /// All of them.
    pub fn all(&self) -> &[Finding] {
        &self.findings
    }

    /// The worst of them.
    pub fn worst(&self) -> FindingState {
        self.findings.iter().map(|finding| finding.state).max().unwrap_or(FindingState::Fine)
    }

    /// 0: fine, or not known; 1: warnings; 2: problems.
    pub fn exit_code(&self) -> u8 {
        match self.worst() {
            FindingState::Fine | FindingState::Unknown => 0,
            FindingState::Warning => 1,
            FindingState::Problem => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_that_of_the_worst_finding() {
        let mut findings = FindingList::default();
        assert_eq!(findings.exit_code(), 0);
        findings.fine("a", "b");
        findings.unknown("a", "b");
        assert_eq!(findings.exit_code(), 0);
        findings.warning("a", "b", "c");
        assert_eq!(findings.exit_code(), 1);
        findings.problem("a", "b", "c");
        findings.fine("a", "b");
        assert_eq!(findings.exit_code(), 2);
        let shown = serde_json::to_value(&findings).expect("plain data");
        assert_eq!(shown["findings"][3]["state"], "problem");
        assert!(shown["findings"][0].get("next").is_none());
    }
}
