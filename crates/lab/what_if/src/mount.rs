//! [`Mount`]: an export as a file system, with the programs that every Debian has.
//!
//! ```text
//!   NBD export (unix socket, this process)
//!     nbdfuse        FOLDER/NAME.export/disk        a file
//!     losetup        /dev/loopN, direct I/O         a block device: the page cache is that of the file system alone
//!     mkfs.ext4, mount   FOLDER/NAME                where the command runs
//! ```
//!
//! It needs root (loop devices and mounts) and the packages nbdfuse, fuse3, e2fsprogs, mount; each is named when it is missing.
//!
//! Invariants: dropping a mount removes all of it, in the reverse order, also after an error half-way; what a process that was killed has
//! left behind is removed by the next one. Nothing outside the folder and its own loop device is touched.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use workload::interrupt;

/// The beginning of the names of folders; the process id follows.
const FOLDER: &str = "terrace-mounts-";
/// The socket of the exports, in the folder.
pub const SOCKET: &str = "nbd.sock";
/// The programs, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 6] = [
    ("nbdfuse", "nbdfuse"),
    ("fusermount3", "fuse3"),
    ("losetup", "mount"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mount", "mount"),
    ("umount", "mount"),
];
/// How long nbdfuse may take until its file is there.
const START: Duration = Duration::from_secs(20);
/// How often a busy mount is tried again: a process of the command may be about to end.
const TRIES: u32 = 25;
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// A mounted export, or what there is of it so far.
#[derive(Debug)]
pub struct Mount {
    /// Where the file system is.
    pub folder: PathBuf,
    /// The loop device.
    pub block_device: PathBuf,
    export: PathBuf,
    fuse: Option<Child>,
    is_looped: bool,
    is_mounted: bool,
}

/// Refuses to begin where it cannot end well.
///
/// # Errors
/// Not root, or a program that is missing, with the package to install.
pub fn check() -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "what-if makes loop devices and mounts: run it as root");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let mut packages: Vec<&str> = Vec::new();
    for (program, package) in PROGRAMS {
        if !is_there(program) && !packages.contains(&package) {
            packages.push(package);
        }
    }
    ensure!(packages.is_empty(), "programs are missing: `apt-get install {}`", packages.join(" "));
    ensure!(Path::new("/dev/fuse").exists(), "this kernel has no /dev/fuse: nbdfuse cannot mount");
    ensure!(Path::new("/dev/loop-control").exists(), "this kernel has no loop devices (/dev/loop-control)");
    Ok(())
}

/// The folder of this process for mounts, readable for the users that a command may change to.
///
/// # Errors
/// It cannot be made.
pub fn make_folder() -> anyhow::Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("{FOLDER}{}", std::process::id()));
    make_readable(&path, 0o755)?;
    Ok(path)
}

/// Removes what processes that were killed have left behind.
pub fn clear_left_over() {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut left: Vec<PathBuf> = mounts.lines().filter_map(left_over).collect();
    // File systems before the exports that they lie on: the latest mount first.
    left.reverse();
    for path in left {
        eprintln!("removing {}, which an earlier run left behind", path.display());
        let loops = run(Command::new("findmnt").args(["-n", "-o", "SOURCE"]).arg(&path)).unwrap_or_default();
        let _ = run(Command::new("umount").arg("-l").arg(&path));
        if loops.starts_with("/dev/loop") {
            let _ = run(Command::new("losetup").args(["-d", loops.trim()]));
        }
        let _ = fs::remove_dir(&path);
        let _ = fs::remove_file(path.with_extension("log"));
        if let Some(folder) = path.parent() {
            let _ = fs::remove_file(folder.join(SOCKET));
            // Not while there is anything in it.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// The mount of a line of `/proc/self/mounts`, if it is one of ours and its process is gone.
fn left_over(line: &str) -> Option<PathBuf> {
    let path = Path::new(line.split(' ').nth(1)?);
    let folder = path.parent()?.file_name()?.to_str()?;
    let pid: u32 = folder.strip_prefix(FOLDER)?.parse().ok()?;
    (!Path::new(&format!("/proc/{pid}")).exists()).then(|| path.to_owned())
}

impl Mount {
    /// Makes a block device of the export at `uri`; no file system yet.
    ///
    /// # Errors
    /// A program failed, with what it printed.
    pub fn attach(folder: &Path, name: &str, uri: &str) -> anyhow::Result<Mount> {
        let mut mount = Mount {
            folder: folder.join(name),
            block_device: PathBuf::new(),
            export: folder.join(format!("{name}.export")),
            fuse: None,
            is_looped: false,
            is_mounted: false,
        };
        fs::create_dir(&mount.export).with_context(|| format!("making {}", mount.export.display()))?;
        let disk = mount.export.join("disk");
        let mut fuse = Command::new("nbdfuse");
        let log = fs::File::create(mount.log()).with_context(|| format!("making {}", mount.log().display()))?;
        fuse.arg(&disk).arg(uri).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // A Ctrl-C of the terminal is for this process, which unmounts first.
        std::os::unix::process::CommandExt::process_group(&mut fuse, 0);
        mount.fuse = Some(fuse.spawn().context("starting nbdfuse")?);
        mount.wait_for(&disk)?;
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--direct-io=on"]).arg(&disk);
        mount.block_device = PathBuf::from(run(&mut losetup)?.trim());
        mount.is_looped = true;
        Ok(mount)
    }

    /// What nbdfuse prints.
    fn log(&self) -> PathBuf {
        self.export.with_extension("log")
    }

    fn wait_for(&mut self, disk: &Path) -> anyhow::Result<()> {
        let began = Instant::now();
        while !fs::metadata(disk).is_ok_and(|file| file.len() > 0) {
            interrupt::check()?;
            let ended = self.fuse.as_mut().map(|fuse| fuse.try_wait()).transpose()?.flatten();
            if ended.is_some() || began.elapsed() > START {
                let why = fs::read_to_string(self.log()).unwrap_or_default();
                bail!("nbdfuse does not mount the export: {}", why.trim());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Makes a file system and mounts it; everyone may make files in it, as in `/tmp`.
    ///
    /// # Errors
    /// A program failed, with what it printed.
    pub fn mount(&mut self) -> anyhow::Result<()> {
        // All of the file system is made now, not by the kernel during a run.
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]).arg(&self.block_device);
        run(&mut make)?;
        make_readable(&self.folder, 0o755)?;
        run(Command::new("mount")
            .args(["-t", "ext4", "-o", "noatime,nosuid,nodev"])
            .arg(&self.block_device)
            .arg(&self.folder))?;
        self.is_mounted = true;
        fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o1777))?;
        Ok(())
    }

    /// The process that carries requests from the kernel to the export.
    pub fn fuse_pid(&self) -> Option<u32> {
        self.fuse.as_ref().map(Child::id)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let tried = |make: &dyn Fn() -> Command| {
            for _ in 0..TRIES {
                if run(&mut make()).is_ok() {
                    return true;
                }
                std::thread::sleep(PAUSE);
            }
            false
        };
        if self.is_mounted {
            let umount = |option: &[&str]| {
                let mut command = Command::new("umount");
                command.args(option).arg(&self.folder);
                command
            };
            if !tried(&|| umount(&[])) {
                eprintln!("{} is busy: it is unmounted when its last user ends", self.folder.display());
                let _ = run(&mut umount(&["-l"]));
            }
            let _ = fs::remove_dir(&self.folder);
        }
        if self.is_looped {
            let _ = run(Command::new("losetup").arg("-d").arg(&self.block_device));
        }
        if let Some(mut fuse) = self.fuse.take() {
            let unmount = || {
                let mut command = Command::new("fusermount3");
                command.arg("-u").arg(&self.export);
                command
            };
            if !tried(&unmount) {
                let _ = run(Command::new("umount").arg("-l").arg(&self.export));
                let _ = fuse.kill();
            }
            let _ = fuse.wait();
        }
        let _ = fs::remove_dir(&self.export);
        let _ = fs::remove_file(self.log());
    }
}

fn make_readable(path: &Path, mode: u32) -> anyhow::Result<()> {
    fs::create_dir(path).with_context(|| format!("making {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Runs a program to its end; returns what it printed.
///
/// # Errors
/// It cannot be started, or failed, with what it printed on standard error.
fn run(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed ({}): {}", output.status, said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_mounts_of_processes_that_are_gone_are_left_over() {
        let own = std::process::id();
        let cases = [
            ("/dev/loop3 /tmp/terrace-mounts-4194305/sata ext4 rw 0 0".to_owned(), true),
            ("nbdfuse /tmp/terrace-mounts-4194305/sata.export fuse rw 0 0".to_owned(), true),
            (format!("/dev/loop3 /tmp/terrace-mounts-{own}/sata ext4 rw 0 0"), false),
            ("/dev/sda1 / ext4 rw 0 0".to_owned(), false),
            ("/dev/sda1 /tmp/terrace-mounts-x/y ext4 rw 0 0".to_owned(), false),
            ("nonsense".to_owned(), false),
        ];
        for (line, is_left) in cases {
            assert_eq!(left_over(&line).is_some(), is_left, "{line}");
        }
    }

    #[test]
    fn a_program_that_fails_says_why() {
        let error = run(Command::new("sh").args(["-c", "echo no good >&2; exit 3"])).expect_err("it fails");
        assert!(error.to_string().contains("no good") && error.to_string().contains('3'), "{error}");
        assert!(run(&mut Command::new("no-such-program")).is_err());
    }
}
