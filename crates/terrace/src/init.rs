//! `terrace init`: makes what a first node needs, and says what comes next.
//!
//! ```text
//!   Layout of a user     DIR/terrace.toml          DIR/terrace-data          DIR/production
//!   Layout of a package  /etc/terrace/terrace.toml /var/lib/terrace          /etc/terrace/production     owner root and user terrace
//!          |
//!          +--steps--> made | there already | there, but not as it should be (with the command that corrects it)
//! ```
//!
//! Invariants: it asks nothing and overwrites nothing; a second run changes nothing. What is there with another owner or mode is reported,
//! with exit code 1, and stays as it is. A package calls the same function as a user does.
//!
//! Users of the node are not made here: they are in its store, and a node that runs decides about them. Who runs the node, and root, are
//! its first administrator; the command for the first one with a name is among the next ones that are printed.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use node::control::LocalPeer;

use crate::cli::InitArgs;
use crate::config::FILE;
use crate::productions::TEMPLATE;
use crate::show::TextTable;

/// The settings that are written.
const SETTINGS: &str = include_str!("../template/terrace.toml");

/// Where a package keeps settings.
pub const SYSTEM_SETTINGS: &str = "/etc/terrace";

/// Where a package keeps data.
pub const SYSTEM_DATA: &str = "/var/lib/terrace";

/// Owner and group of what is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    uid: u32,
    gid: u32,
}

/// What is made.
#[derive(Debug)]
enum What {
    Folder,
    File(String),
}

/// One thing that has to be there.
#[derive(Debug)]
struct Step {
    /// Where.
    path: PathBuf,
    what: What,
    /// Its mode; of what is there already it may be stricter.
    mode: u32,
    /// Its owner; `None`: who runs this.
    owner: Option<Owner>,
    /// Is there a mode or an owner with which a node cannot run, or others read data?
    strict: bool,
}

/// What became of a step.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Made,
    There,
    /// It is there, and wrong; the command that corrects it.
    Wrong(String),
}

/// Runs it.
pub fn run(args: &InitArgs) -> anyhow::Result<ExitCode> {
    let (steps, next) = if args.system { system(args)? } else { own(args.dir.as_deref().unwrap_or(Path::new(".")))? };
    let mut table = TextTable::new(&["", "what", "mode"]);
    let mut wrong = Vec::new();
    for step in &steps {
        let outcome = step.take().with_context(|| format!("cannot make {}", step.path.display()))?;
        let word = match outcome {
            Outcome::Made => "made",
            Outcome::There => "kept",
            Outcome::Wrong(correct) => {
                wrong.push(correct);
                "wrong"
            }
        };
        table.row(&[word, &step.path.display().to_string(), &format!("{:04o}", step.mode)]);
    }
    println!("{table}");
    if !wrong.is_empty() {
        println!(
            "some of it was there, and has another owner or mode than it needs; nothing was changed. To correct it:"
        );
        wrong.iter().for_each(|command| println!("  {command}"));
        return Ok(ExitCode::from(1));
    }
    println!("next:");
    next.iter().for_each(|line| println!("  {line}"));
    Ok(ExitCode::SUCCESS)
}

type Planned = (Vec<Step>, Vec<String>);

/// The layout below a folder of a user.
fn own(dir: &Path) -> anyhow::Result<Planned> {
    let step = |path: PathBuf, what, mode, strict| Step { path, what, mode, owner: None, strict };
    let settings = settings_text("terrace-data", "production");
    let mut steps = vec![step(dir.to_owned(), What::Folder, 0o755, false)];
    // A password's verifier may be in it one day.
    steps.push(step(dir.join(FILE), What::File(settings), 0o600, false));
    steps.push(step(dir.join("terrace-data"), What::Folder, 0o700, true));
    steps.extend(production(&dir.join("production"), None, [0o755, 0o644], "archive"));
    let go = (dir != Path::new(".")).then(|| format!("cd {}", dir.display()));
    let commands = [
        "terrace doctor                                    # checks settings and machine",
        "terrace serve                                     # runs the node, until Ctrl-C; then, elsewhere in this folder:",
        "terrace message send production/admission.hl7     # a first message, and its acknowledgement",
        "terrace user add NAME --administrator             # an administrator who can log in to SQL and search",
        "terrace status",
    ];
    Ok((steps, go.into_iter().chain(commands.map(str::to_owned)).collect()))
}

/// The layout of the package.
fn system(args: &InitArgs) -> anyhow::Result<Planned> {
    ensure!(
        args.dir.is_none(),
        "--system has its own folders ({SYSTEM_SETTINGS}, {SYSTEM_DATA}): leave {} out",
        shown(&args.dir)
    );
    let uid = LocalPeer::this_process().uid;
    ensure!(
        uid == Some(0),
        "--system writes below {SYSTEM_SETTINGS} and {SYSTEM_DATA} for the user {}, which only root may do: sudo terrace init --system",
        args.user
    );
    let root = args.root.clone().unwrap_or_else(|| PathBuf::from("/"));
    let Some(user) = find_user(&root, &args.user)? else {
        bail!(
            "there is no user {name} on this machine. The package makes it; by hand:\n  useradd --system --user-group --home-dir {SYSTEM_DATA} \
             --no-create-home --shell /usr/sbin/nologin {name}",
            name = args.user
        );
    };
    Ok((system_steps(&root, user), system_next()))
}

fn shown(path: &Option<PathBuf>) -> String {
    path.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
}

fn system_steps(root: &Path, user: Owner) -> Vec<Step> {
    let at = |path: &str| root.join(path.trim_start_matches('/'));
    let (settings, data) = (at(SYSTEM_SETTINGS), at(SYSTEM_DATA));
    // Root writes settings, the node reads them, others do not: keys and verifiers may be among them.
    let readable = Some(Owner { uid: 0, gid: user.gid });
    let text = settings_text(SYSTEM_DATA, &format!("{SYSTEM_SETTINGS}/production"));
    let mut steps = vec![
        Step { path: settings.clone(), what: What::Folder, mode: 0o750, owner: readable, strict: false },
        Step { path: settings.join(FILE), what: What::File(text), mode: 0o640, owner: readable, strict: false },
        Step { path: data, what: What::Folder, mode: 0o700, owner: Some(user), strict: true },
    ];
    // The unit may only write below the data folder.
    let archive = format!("{SYSTEM_DATA}/archive");
    steps.extend(production(&settings.join("production"), readable, [0o750, 0o640], &archive));
    steps
}

fn system_next() -> Vec<String> {
    [
        "terrace doctor --config /etc/terrace/terrace.toml # checks settings and machine",
        "systemctl enable --now terrace                    # starts the node, now and at each start of the machine",
        "terrace message send /etc/terrace/production/admission.hl7",
        "terrace user add NAME --administrator --data /var/lib/terrace",
        "terrace status --data /var/lib/terrace",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The steps of the example production: all of its files, or nothing where the folder is there.
fn production(folder: &Path, owner: Option<Owner>, [folders, files]: [u32; 2], archive: &str) -> Vec<Step> {
    let step = |path: PathBuf, what, mode| Step { path, what, mode, owner, strict: false };
    let mut steps = vec![step(folder.to_owned(), What::Folder, folders)];
    if folder.exists() {
        return steps;
    }
    for (name, text) in TEMPLATE {
        let path = folder.join(name);
        let parent = path.parent().expect("a file in the folder");
        if steps.iter().all(|step| step.path != parent) {
            steps.push(step(parent.to_owned(), What::Folder, folders));
        }
        let text = text.replace("folder = \"archive\"", &format!("folder = \"{archive}\""));
        steps.push(step(path, What::File(text), files));
    }
    steps
}

fn settings_text(data: &str, production: &str) -> String {
    let text = SETTINGS.replace("@DATA@", data).replace("@PRODUCTION@", production);
    // A program that was built without SQL refuses its table.
    if cfg!(feature = "sql") { text } else { text.replace("\n[sql]\n", "\n#[sql]\n") }
}

impl Step {
    /// Makes it where it is not there.
    fn take(&self) -> io::Result<Outcome> {
        match fs::metadata(&self.path) {
            Ok(found) => Ok(self.judge(&found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.make().map(|()| Outcome::Made),
            Err(error) => Err(error),
        }
    }

    fn make(&self) -> io::Result<()> {
        match &self.what {
            What::Folder => fs::DirBuilder::new().recursive(true).mode(self.mode).create(&self.path)?,
            What::File(text) => {
                // It is not there; who makes it meanwhile is not overwritten.
                let mut file = File::options().write(true).create_new(true).mode(self.mode).open(&self.path)?;
                file.write_all(text.as_bytes())?;
                file.sync_all()?;
            }
        }
        // The umask of the shell took bits away.
        fs::set_permissions(&self.path, fs::Permissions::from_mode(self.mode))?;
        match self.owner {
            Some(Owner { uid, gid }) => chown(&self.path, Some(uid), Some(gid)),
            None => Ok(()),
        }
    }

    /// Whether a node can use what is there, and nobody else what is private.
    fn judge(&self, found: &Metadata) -> Outcome {
        let path = self.path.display();
        if found.is_dir() != matches!(self.what, What::Folder) {
            return Outcome::Wrong(format!(
                "mv {path} {path}.other     # it is in the way: a {} is needed",
                self.kind()
            ));
        }
        if !self.strict {
            return Outcome::There;
        }
        if let Some(Owner { uid, gid }) = self.owner.filter(|owner| owner.uid != found.uid()) {
            return Outcome::Wrong(format!("chown -R {uid}:{gid} {path}"));
        }
        match found.mode() & 0o7777 & !self.mode {
            0 => Outcome::There,
            _ => Outcome::Wrong(format!("chmod {:04o} {path}", self.mode)),
        }
    }

    fn kind(&self) -> &'static str {
        match self.what {
            What::Folder => "folder",
            What::File(_) => "file",
        }
    }
}

/// Owner and group of a user in the list of users below `root`.
fn find_user(root: &Path, name: &str) -> anyhow::Result<Option<Owner>> {
    let path = root.join("etc/passwd");
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    Ok(user_in(&text, name))
}

/// passwd(5): `name:password:uid:gid:...`
fn user_in(users: &str, name: &str) -> Option<Owner> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (found, uid, gid) = (fields.next()?, fields.nth(1)?, fields.next()?);
        (found == name).then_some(())?;
        Some(Owner { uid: uid.parse().ok()?, gid: gid.parse().ok()? })
    })
}

/// The user of the package, where this machine has it.
pub fn system_uid() -> Option<u32> {
    find_user(Path::new("/"), "terrace").ok().flatten().map(|owner| owner.uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn args(dir: &Path) -> InitArgs {
        InitArgs { dir: Some(dir.to_owned()), system: false, user: "terrace".to_owned(), root: None }
    }

    #[cfg(all(feature = "sql", feature = "search"))]
    #[test]
    fn every_key_that_the_settings_show_is_one_of_the_program() {
        let dir = tempfile::tempdir().expect("a folder");
        let is_key = |line: &str| line.starts_with(|first: char| first.is_ascii_lowercase() || first == '[');
        let on = |line: &'static str| line.strip_prefix('#').filter(|line| is_key(line)).unwrap_or(line);
        let shown: String = SETTINGS.lines().map(|line| format!("{}\n", on(line))).collect();
        assert!(shown.contains("\nkeep_days = 3650\n") && shown.contains("\n[search]\n"), "{shown}");
        let file = dir.path().join(FILE);
        fs::write(&file, &shown).expect("a file");
        Config::read(Some(&file)).unwrap_or_else(|error| panic!("{error:#}\n{shown}"));
    }

    #[test]
    fn the_settings_that_are_written_are_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join(FILE);
        fs::write(&file, settings_text("/var/lib/terrace", "/etc/terrace/production")).expect("a file");
        assert_eq!(Config::read(Some(&file)).expect("it is read").data(), Path::new("/var/lib/terrace"));
    }

    #[test]
    fn a_second_run_keeps_all_that_is_there_and_changed_since() {
        let home = tempfile::tempdir().expect("a folder");
        let dir = home.path().join("node");
        assert_eq!(run(&args(&dir)).expect("it is made"), ExitCode::SUCCESS);
        fs::write(dir.join(FILE), "log = \"warn\"\n").expect("a file");
        fs::remove_dir_all(dir.join("production/operations")).expect("it is there");
        assert_eq!(run(&args(&dir)).expect("it is kept"), ExitCode::SUCCESS);
        assert_eq!(fs::read_to_string(dir.join(FILE)).expect("a file"), "log = \"warn\"\n");
        assert!(!dir.join("production/operations").exists(), "a production is the user's");
        let data = fs::metadata(dir.join("terrace-data")).expect("a folder");
        assert_eq!(data.mode() & 0o777, 0o700);
    }

    #[test]
    fn a_data_folder_that_others_may_open_is_reported_and_not_changed() {
        let home = tempfile::tempdir().expect("a folder");
        let data = home.path().join("terrace-data");
        fs::create_dir(&data).expect("a folder");
        fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).expect("ours");
        assert_eq!(run(&args(home.path())).expect("it runs"), ExitCode::from(1));
        assert_eq!(fs::metadata(&data).expect("a folder").mode() & 0o777, 0o755);
        let step = Step { path: data, what: What::Folder, mode: 0o700, owner: None, strict: true };
        assert!(
            matches!(step.take().expect("it is there"), Outcome::Wrong(command) if command.starts_with("chmod 0700 "))
        );
    }

    #[test]
    fn a_user_is_found_in_the_list_of_users() {
        let users = "root:x:0:0:root:/root:/bin/sh\nterrace:x:997:996::/var/lib/terrace:/usr/sbin/nologin\nbroken:x\n";
        assert_eq!(user_in(users, "terrace"), Some(Owner { uid: 997, gid: 996 }));
        assert_eq!(user_in(users, "broken"), None);
        assert_eq!(user_in(users, "terra"), None);
    }

    #[test]
    fn the_layout_of_the_package_writes_its_messages_where_its_unit_may_write() {
        let root = tempfile::tempdir().expect("a folder");
        let steps = system_steps(root.path(), Owner { uid: 997, gid: 996 });
        let of = |end: &str| steps.iter().find(|step| step.path.ends_with(end)).expect("a step");
        assert!(
            matches!(&of("operations/archive.toml").what, What::File(text) if text.contains("/var/lib/terrace/archive"))
        );
        assert_eq!(
            (of("var/lib/terrace").mode, of("var/lib/terrace").owner),
            (0o700, Some(Owner { uid: 997, gid: 996 }))
        );
        assert_eq!((of("terrace.toml").mode, of("terrace.toml").owner), (0o640, Some(Owner { uid: 0, gid: 996 })));
    }
}
