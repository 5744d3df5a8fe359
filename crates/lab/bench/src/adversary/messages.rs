//! Messages that take long to decide on: each is answered, and no other client waits for it.

use std::fmt::Write as _;
use std::time::Duration;

use super::sockets::{contains, exchange};
use super::{Broken, Target};

/// Every message goes through the transform.
pub(super) const RULES: &str = "match all\nrule everything { send to edited using edited }\n";

/// Changes as many places as there are, and deletes as many.
pub(super) const TRANSFORM: &str = "for each PID-3 as id { if id.5 = 'SS' { delete id } }\n\
    for each OBX as o { set o-1 = index(o) }\n";

/// How long an answer may take: the bound of time for one message, and what a loaded machine adds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A patient with very many numbers, and a result with very many observations.
pub(super) fn costly(target: &Target) -> anyhow::Result<Broken> {
    let (repetitions, observations) = if target.quick { (20_000, 10_000) } else { (100_000, 45_000) };
    let mut broken = Broken::new();
    for (what, message, accepted) in
        [("patient numbers", patient(repetitions), false), ("observations", results(observations), true)]
    {
        match exchange(target.edited, message.as_bytes(), PATIENCE) {
            Ok(answer) if contains(&answer, b"MSA|AA|") => {}
            // An error is an answer, too, where the issue is time; results of that size are ordinary.
            Ok(answer) if !accepted && (contains(&answer, b"MSA|AE|") || contains(&answer, b"MSA|AR|")) => {}
            Ok(answer) => broken.push(format!("{what}: {}", String::from_utf8_lossy(&answer).replace('\r', " / "))),
            Err(error) => broken.push(format!("{what}: no answer: {error}")),
        }
    }
    Ok(broken)
}

fn head(id: &str) -> String {
    format!("MSH|^~\\&|HIS|NORTH|HUB|X|20260101120000||ORU^R01|{id}|P|2.5\r")
}

fn patient(repetitions: usize) -> String {
    let mut text = head("COSTLY1") + "PID|1||";
    for number in 0..repetitions {
        let kind = if number % 2 == 0 { "SS" } else { "MR" };
        let _ = write!(text, "{}{number}^^^A^{kind}", if number > 0 { "~" } else { "" });
    }
    text + "||SAMPLE^ANN\r"
}

fn results(observations: usize) -> String {
    let mut text = head("COSTLY2") + "PID|1||1||SAMPLE^ANN\rOBR|1|||PANEL\r";
    for number in 0..observations {
        let _ = write!(text, "OBX|{number}|NM|GLU^Glucose||5.4|mmol\r");
    }
    text
}
