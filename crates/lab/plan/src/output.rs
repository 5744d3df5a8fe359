//! What commands read, print and write, and how.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use anyhow::{Context, ensure};
use tempfile::NamedTempFile;

use crate::mix::report::PlanReport;

/// The largest plan, bytes.
const PLAN_BYTES_MAX: u64 = 64 << 20;

/// Prints all of it; who reads may have gone.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("writing the result"),
    }
}

/// The text of a file of at most so many bytes.
pub(crate) fn read_text(path: &Path, most: u64) -> anyhow::Result<String> {
    let context = || format!("reading {}", path.display());
    let mut text = String::new();
    let file = File::open(path).with_context(context)?;
    file.take(most + 1).read_to_string(&mut text).with_context(context)?;
    ensure!(text.len() as u64 <= most, "{} has more than {most} bytes", path.display());
    Ok(text)
}

/// A plan, as `terrace plan --json` printed it.
pub(crate) fn read_plan(path: &Path) -> anyhow::Result<PlanReport> {
    let text = read_text(path, PLAN_BYTES_MAX)?;
    serde_json::from_str(&text).with_context(|| format!("{} is no plan of --json", path.display()))
}

/// The folder of a file.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file, which has another name until it is whole and durable.
pub(crate) fn write_durably(out: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut file =
        NamedTempFile::new_in(folder_of(out)).with_context(|| format!("making a file beside {}", out.display()))?;
    file.write_all(bytes).with_context(|| format!("writing {}", out.display()))?;
    persist(file, out)
}

/// Gives a file that was written its name, durably.
pub(crate) fn persist(file: NamedTempFile, out: &Path) -> anyhow::Result<()> {
    let context = || format!("writing {}", out.display());
    file.as_file().sync_all().with_context(context)?;
    file.persist(out).with_context(context)?;
    File::open(folder_of(out)).and_then(|folder| folder.sync_all()).with_context(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_one_that_is_too_large_is_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("plan.json");
        write_durably(&file, b"{").expect("writes");
        write_durably(&file, b"{}").expect("replaces");
        assert_eq!(read_text(&file, 2).expect("two bytes"), "{}");
        assert!(read_text(&file, 1).expect_err("too large").to_string().contains("more than 1 bytes"));
        assert!(read_plan(&file).expect_err("none").to_string().contains("is no plan"));
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing else is left there");
        assert!(write_durably(&folder.path().join("none/plan.json"), b"").is_err());
        assert_eq!((folder_of(Path::new("plan")), folder_of(Path::new("a/plan"))), (Path::new("."), Path::new("a")));
    }
}
