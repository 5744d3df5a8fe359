//! A file that is larger than the memory it may take.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{Broken, Target};

/// How long the node may take over it.
const PATIENCE: Duration = Duration::from_secs(300);

/// A file of very many messages, moved into the folder as a whole.
pub(super) fn large(target: &Target) -> anyhow::Result<Broken> {
    let messages = if target.quick { 2_000 } else { 20_000 };
    let (made, place) = (target.data.join("large.tmp"), target.pickup.join("large.hl7"));
    let mut file = BufWriter::new(File::create(&made).context("making the file")?);
    // 40 KB a message: 80 MB, or 800.
    let body = "NTE|1||".to_owned() + &"a long report ".repeat(2_900) + "\r";
    for number in 0..messages {
        write!(
            file,
            "MSH|^~\\&|HIS|NORTH|HUB|X|20260101120000||ORU^R01|L{number}|P|2.5\rPID|1||1||SAMPLE^ANN\r{body}"
        )?;
    }
    file.into_inner().context("writing the file")?.sync_all()?;
    std::fs::rename(&made, &place).context("moving the file")?;
    let begun = Instant::now();
    while place.exists() {
        if begun.elapsed() > PATIENCE {
            return Ok(vec![format!("a file of {messages} messages is not taken after {} s", PATIENCE.as_secs())]);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    match target.pickup.join("done").read_dir().is_ok_and(|mut files| files.next().is_some()) {
        true => Ok(Broken::new()),
        false => Ok(vec!["the file went to the folder of errors".to_owned()]),
    }
}
