//! The machine that `apply` changes, behind a trait so that a test can replace it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use catalogue::provision::Machine;

/// Bytes looked at in one place of a device.
const LOOK_BYTES: usize = 1 << 20;

/// Places looked at, the first and the last megabyte among them.
const LOOKS: u64 = 256;

/// Runs commands, looks at devices, makes files.
pub trait Host {
    /// Runs a command to its end; returns its standard output. An error contains its standard error.
    fn run(&mut self, words: &[String]) -> anyhow::Result<String>;
    /// Whether a block device holds nothing but zeros where file systems and programs begin and in samples between.
    fn is_blank(&mut self, device: &str) -> anyhow::Result<bool>;
    /// Makes a directory and those above it.
    fn make_directory(&mut self, path: &Path) -> anyhow::Result<()>;
    /// Makes a file of zeros, all of its space allocated; one of that size that is there is left alone.
    fn make_file(&mut self, path: &Path, bytes: u64) -> anyhow::Result<()>;
    /// The present machine.
    fn machine(&mut self) -> anyhow::Result<Machine>;
    /// Another after each start of the system.
    fn boot(&mut self) -> anyhow::Result<String>;
}

/// This machine.
pub struct ThisMachine {
    /// Where /sys and /proc are.
    pub root: PathBuf,
}

impl Host for ThisMachine {
    fn run(&mut self, words: &[String]) -> anyhow::Result<String> {
        let (program, rest) = words.split_first().context("a command has a program")?;
        // Tools for administrators are not on every user's path.
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let done = Command::new(program).args(rest).env("PATH", path).stdin(Stdio::null()).output();
        let done = done.with_context(|| format!("cannot run {program}"))?;
        if !done.status.success() {
            let text = String::from_utf8_lossy(&done.stderr);
            bail!("{} ({}): {}", words.join(" "), done.status, text.trim());
        }
        String::from_utf8(done.stdout).with_context(|| format!("the output of {program} is no text"))
    }

    fn is_blank(&mut self, device: &str) -> anyhow::Result<bool> {
        let path = Path::new("/dev").join(device);
        let file = File::open(&path).with_context(|| format!("cannot look at {}", path.display()))?;
        // The length of a block device is where its end is.
        let bytes = std::io::Seek::seek(&mut &file, std::io::SeekFrom::End(0))?;
        let last = bytes.saturating_sub(LOOK_BYTES as u64);
        let mut buffer = vec![0u8; LOOK_BYTES];
        for look in 0..LOOKS {
            let at = (u128::from(last) * u128::from(look) / u128::from(LOOKS - 1)) as u64;
            let length = (bytes - at).min(LOOK_BYTES as u64) as usize;
            file.read_exact_at(&mut buffer[..length], at).with_context(|| format!("cannot read {}", path.display()))?;
            if buffer[..length].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn make_directory(&mut self, path: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))
    }

    fn make_file(&mut self, path: &Path, bytes: u64) -> anyhow::Result<()> {
        match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => device::os::reserve(&file, bytes).and_then(|()| file.sync_all()).or_else(|error| {
                // Half a file would be taken for a whole one the next time.
                std::fs::remove_file(path).and(Err(error))
            }),
            Err(error)
                if error.kind() == std::io::ErrorKind::AlreadyExists && std::fs::metadata(path)?.len() == bytes =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
        .with_context(|| format!("cannot make {} of {bytes} bytes", path.display()))
    }

    fn machine(&mut self) -> anyhow::Result<Machine> {
        Ok(Machine::read(&self.root)?)
    }

    fn boot(&mut self) -> anyhow::Result<String> {
        let path = self.root.join("proc/sys/kernel/random/boot_id");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(text.trim().to_owned())
    }
}
