//! `terrace tier apply`: runs a plan's steps one by one and records each in a file, so that the restart of a goal does
//! not lose the progress.
//!
//! ```text
//!   state file?   no:  plan from options or file ---> show, ask ---+
//!                 yes: the plan that waits -------> go on ---------+--> step, write state, step, ... finished: state removed
//!                                                                       |
//!                                                                       +--> restart is due: report it, keep the state
//! ```
//!
//! The first step that fails ends the command; the state stays, so that the same command continues with that step once
//! the cause is removed. A plan that was not finished is never replaced by another without `--discard`.

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use catalogue::provision::{Next, Plan, Progress, ProvisionError, Step};
use serde::Serialize;

use super::args::{ApplyArgs, PlaceArgs};
use super::host::{Host, ThisMachine};
use super::planning;

/// A plan that is not finished, as `tier list` shows it.
#[derive(Debug, Serialize)]
pub struct Waiting {
    /// Whether it waits for the machine to be switched off and on.
    restart: bool,
    /// Steps done.
    done: usize,
    /// Of how many.
    steps: usize,
    /// The remaining steps.
    commands: Vec<String>,
}

impl Waiting {
    /// For people.
    pub fn to_text(&self) -> String {
        match self.restart {
            true => "A goal is pending: switch the machine off and on, then run terrace tier apply".to_owned(),
            false => format!(
                "A plan is not finished ({} of {} steps): terrace tier apply goes on with\n  {}",
                self.done,
                self.steps,
                self.commands.first().map_or("", String::as_str)
            ),
        }
    }
}

/// The plan that waits, if one does.
pub fn waiting(place: &PlaceArgs) -> anyhow::Result<Option<Waiting>> {
    let Some(mut progress) = load(&place.state)? else { return Ok(None) };
    let boot = ThisMachine { root: place.root.clone() }.boot()?;
    let restart = progress.next(&boot) == Next::Restart;
    let (done, steps) = progress.steps();
    let commands = progress.plan().steps[done..].iter().map(|step| step.to_text(progress.names())).collect();
    Ok(Some(Waiting { restart, done, steps, commands }))
}

/// Runs it.
pub fn run(args: &ApplyArgs) -> anyhow::Result<ExitCode> {
    let mut host = ThisMachine { root: args.place.root.clone() };
    let state = &args.place.state;
    let before = load(state)?;
    if args.discard {
        let Some(before) = &before else { bail!("there is no plan that waits in {}", state.display()) };
        let (done, steps) = before.steps();
        std::fs::remove_file(state).with_context(|| format!("cannot remove {}", state.display()))?;
        println!("forgotten: a plan of which {done} of {steps} steps were done; nothing was undone");
        return Ok(ExitCode::SUCCESS);
    }
    let mut progress = match (before, &args.plan) {
        (Some(before), None) => {
            if !args.wish.is_default() {
                bail!(
                    "a plan is not finished, and these options are for a new one; go on with it (terrace tier apply), or forget it (terrace tier apply --discard)"
                );
            }
            before
        }
        (Some(before), Some(file)) => {
            if read_plan(file)? != *before.plan() {
                bail!(
                    "another plan is not finished; go on with it (terrace tier apply), or forget it (terrace tier apply --discard)"
                );
            }
            before
        }
        (None, Some(file)) => Progress::new(read_plan(file)?),
        (None, None) => Progress::new(planning::make(&args.wish, &host.machine()?)?),
    };
    if progress.plan().modelled {
        print!("{}", planning::text(progress.plan()));
        carry_out(&mut progress, &mut host, &args.wish.overwrite, &mut |_| Ok(()))?;
        println!("\ndone");
        return Ok(ExitCode::SUCCESS);
    }
    show(&progress);
    if !args.yes && !confirmed(&progress, &mut host)? {
        println!("nothing was done");
        return Ok(ExitCode::from(1));
    }
    let restart = carry_out(&mut progress, &mut host, &args.wish.overwrite, &mut |progress| store(state, progress))?;
    if restart {
        println!(
            "\nThe goal is pending: switch the machine off and on (a warm reboot may not do), then run terrace tier apply"
        );
    } else {
        std::fs::remove_file(state).with_context(|| format!("cannot remove {}", state.display()))?;
        println!("\ndone");
    }
    Ok(ExitCode::SUCCESS)
}

/// The plan, or its remaining part.
fn show(progress: &Progress) {
    match progress.steps() {
        (0, _) => print!("{}", planning::text(progress.plan())),
        (done, steps) => {
            println!("{done} of {steps} steps are done; left are");
            for step in &progress.plan().steps[done..] {
                println!("  {}", step.to_text(progress.names()));
            }
        }
    }
    println!();
}

/// Requests confirmation. A plan that only waits for a restart needs none.
fn confirmed(progress: &Progress, host: &mut impl Host) -> anyhow::Result<bool> {
    if progress.is_pending(&host.boot()?) {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() {
        bail!("these commands change the machine: run it on a terminal, or give --yes");
    }
    print!(
        "These commands change the machine, and the content of the namespaces that they name is lost. Type yes to run them: "
    );
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}

/// Takes steps until the end (false) or a restart (true); `keep` is called after each, and before the first.
pub fn carry_out(
    progress: &mut Progress,
    host: &mut impl Host,
    overwrite: &[String],
    keep: &mut dyn FnMut(&Progress) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let boot = host.boot()?;
    loop {
        let next = progress.next(&boot);
        keep(progress)?;
        let step = match next {
            Next::Finished => return Ok(false),
            Next::Restart => return Ok(true),
            Next::Do(step) => step,
        };
        progress.check(&host.machine()?)?;
        println!("{}", step.to_text(progress.names()));
        let output = take(&step, progress.names(), host, overwrite)?;
        progress.completed(&output)?;
    }
}

/// Runs one step; returns the output of its command.
fn take(
    step: &Step,
    names: &BTreeMap<String, String>,
    host: &mut impl Host,
    overwrite: &[String],
) -> anyhow::Result<String> {
    match step {
        Step::Run(command) => return host.run(&command.filled(names)),
        Step::Empty { namespace, device } => {
            // The plan may be old: memory that was free then can be in use now.
            if let Some(mount) = host.machine()?.mount_of(device) {
                let advice = format!("unmount it (umount {}) and run terrace tier apply again", mount.path);
                return Err(ProvisionError::Occupied {
                    what: namespace.clone(),
                    state: format!("mounted at {}", mount.path),
                    advice,
                }
                .into());
            }
            if !overwrite.contains(namespace) && !host.is_blank(device)? {
                let advice = format!("look at /dev/{device}; if it may go: terrace tier apply --overwrite {namespace}");
                return Err(
                    ProvisionError::Occupied { what: namespace.clone(), state: "not empty".into(), advice }.into()
                );
            }
        }
        Step::Directory { path } => host.make_directory(Path::new(path))?,
        Step::File { path, bytes } => host.make_file(Path::new(path), *bytes)?,
        Step::Restart => unreachable!("a restart is never taken as a step"),
    }
    Ok(String::new())
}

fn read_plan(file: &Path) -> anyhow::Result<Plan> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is not what terrace tier plan --out writes", file.display()))
}

fn load(state: &Path) -> anyhow::Result<Option<Progress>> {
    match std::fs::read_to_string(state) {
        Ok(text) => {
            let progress = serde_json::from_str(&text);
            progress.map(Some).with_context(|| {
                format!("{} does not hold the state of a plan; if it may go, remove it", state.display())
            })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", state.display())),
    }
}

/// Writes the state so that a crash leaves the old or the new one.
fn store(state: &Path, progress: &Progress) -> anyhow::Result<()> {
    let folder = state.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(serde_json::to_string_pretty(progress)?.as_bytes())?;
        // `tier list` shows it to every user.
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.as_file().sync_all()?;
        file.persist(state)?;
        std::fs::File::open(folder)?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", state.display()))
}

#[cfg(test)]
mod tests {
    use catalogue::provision::machine::{Mount, Region, Series};
    use catalogue::provision::wish::Hypothesis;
    use catalogue::provision::{Goal, Machine, NamespaceWish, Wish, plan};

    use super::*;

    /// A host that records the requested commands.
    struct Script {
        machine: Machine,
        boot: &'static str,
        blank: bool,
        /// The command that fails, by a word in it.
        fails: Option<&'static str>,
        did: Vec<String>,
    }

    impl Host for Script {
        fn run(&mut self, words: &[String]) -> anyhow::Result<String> {
            let line = words.join(" ");
            if self.fails.is_some_and(|word| line.contains(word)) {
                bail!("{line}: refused");
            }
            self.did.push(line);
            Ok("{\"blockdev\":\"pmem0.7\"}".into())
        }
        fn is_blank(&mut self, device: &str) -> anyhow::Result<bool> {
            self.did.push(format!("look at {device}"));
            Ok(self.blank)
        }
        fn make_directory(&mut self, path: &Path) -> anyhow::Result<()> {
            self.did.push(format!("mkdir {}", path.display()));
            Ok(())
        }
        fn make_file(&mut self, path: &Path, bytes: u64) -> anyhow::Result<()> {
            self.did.push(format!("file {} {bytes}", path.display()));
            Ok(())
        }
        fn machine(&mut self) -> anyhow::Result<Machine> {
            Ok(self.machine.clone())
        }
        fn boot(&mut self) -> anyhow::Result<String> {
            Ok(self.boot.into())
        }
    }

    fn script() -> Script {
        let machine = Hypothesis {
            modules: "2x128GiB".into(),
            dram_bytes: Some(64 << 30),
            sockets: 1,
            series: Some(Series::S100),
            socket_limit_bytes: None,
        };
        Script { machine: machine.machine().expect("described"), boot: "a", blank: true, fails: None, did: Vec::new() }
    }

    fn goal_plan(script: &Script) -> Plan {
        let wish = Wish {
            goal: Some(Goal::parse("app-direct=100").expect("a goal")),
            namespaces: NamespaceWish::parse_list("fsdax").expect("a namespace"),
            ..Wish::default()
        };
        plan(&script.machine, &wish).expect("a plan")
    }

    #[test]
    fn a_goal_is_set_kept_in_the_state_file_and_gone_on_with_in_the_next_boot() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let state = folder.path().join("below/state.json");
        let mut host = script();
        let mut progress = Progress::new(goal_plan(&host));
        let mut keep = |progress: &Progress| store(&state, progress);
        assert!(carry_out(&mut progress, &mut host, &[], &mut keep).expect("the goal"), "a restart is due");
        assert_eq!(host.did, ["ipmctl create -f -goal MemoryMode=0 PersistentMemoryType=AppDirect"]);
        // Again in the same boot: nothing runs twice.
        let mut progress = load(&state).expect("readable").expect("there");
        assert!(carry_out(&mut progress, &mut host, &[], &mut keep).expect("still"));
        assert_eq!(host.did.len(), 1);
        // In the next boot, before and after the firmware made the region.
        host.boot = "b";
        let mut progress = load(&state).expect("readable").expect("there");
        let refusal = carry_out(&mut progress, &mut host, &[], &mut keep).expect_err("no region").to_string();
        assert!(refusal.contains("region0 is not there"), "{refusal}");
        host.machine.regions.push(Region { name: "region0".into(), ..Region::default() });
        let mut progress = load(&state).expect("readable").expect("there");
        assert!(!carry_out(&mut progress, &mut host, &[], &mut keep).expect("the rest"), "finished");
        assert_eq!(host.did.last().expect("a mount"), "mount -t xfs -o dax=always /dev/pmem0.7 /mnt/pmem0");
    }

    #[test]
    fn the_first_command_that_fails_ends_it_and_the_next_call_goes_on_with_it() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let state = folder.path().join("state.json");
        let mut host = script();
        host.boot = "b";
        host.machine.regions.push(Region { name: "region0".into(), ..Region::default() });
        let mut progress = Progress::new(goal_plan(&script()));
        let mut keep = |progress: &Progress| store(&state, progress);
        host.boot = "a";
        carry_out(&mut progress, &mut host, &[], &mut keep).expect("the goal");
        host.boot = "b";
        host.fails = Some("mkfs");
        assert!(carry_out(&mut progress, &mut host, &[], &mut keep).is_err());
        assert!(host.did.last().expect("ran").contains("create-namespace"));
        host.fails = None;
        let mut progress = load(&state).expect("readable").expect("there");
        carry_out(&mut progress, &mut host, &[], &mut keep).expect("goes on");
        let made = host.did.iter().filter(|line| line.contains("create-namespace")).count();
        assert_eq!(made, 1, "the namespace is not made again: {:?}", host.did);
        assert!(host.did.iter().any(|line| line.contains("mkfs.xfs") && line.contains("/dev/pmem0.7")));
    }

    #[test]
    fn a_device_that_holds_something_or_is_mounted_by_now_is_left_alone_unless_told() {
        let step = Step::Empty { namespace: "namespace0.0".into(), device: "pmem0".into() };
        let names = BTreeMap::new();
        let mut host = script();
        take(&step, &names, &mut host, &[]).expect("blank");
        host.blank = false;
        let refusal = take(&step, &names, &mut host, &[]).expect_err("not blank").to_string();
        assert!(refusal.contains("not empty") && refusal.contains("--overwrite namespace0.0"), "{refusal}");
        take(&step, &names, &mut host, &["namespace0.0".into()]).expect("told");
        host.machine.mounts.push(Mount { source: "/dev/pmem0".into(), path: "/data".into(), ..Mount::default() });
        let refusal = take(&step, &names, &mut host, &["namespace0.0".into()]).expect_err("mounted").to_string();
        assert!(refusal.contains("mounted at /data"), "{refusal}");
    }

    #[test]
    fn a_modelled_tier_has_its_directories_and_files_of_the_size_planned() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let wish = Wish {
            namespaces: NamespaceWish::parse_list("fsdax=64MiB,sector=32MiB").expect("read"),
            ..Wish::default()
        };
        let at = folder.path().join("tiers").to_str().expect("UTF-8").to_owned();
        let planned = catalogue::provision::plan::plan_modelled(&at, 128 << 20, &wish).expect("a plan");
        for _ in 0..2 {
            let mut host = ThisMachine { root: "/".into() };
            carry_out(&mut Progress::new(planned.clone()), &mut host, &[], &mut |_| Ok(()))
                .expect("made, and left alone the second time");
            assert!(folder.path().join("tiers/pmem0").is_dir());
            let file = std::fs::metadata(folder.path().join("tiers/pmem0.1s")).expect("a file");
            assert_eq!(file.len(), planned.capacities[1].usable);
        }
    }

    #[test]
    fn a_state_file_that_holds_something_else_is_an_error_that_says_so() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let state = folder.path().join("state.json");
        assert!(load(&state).expect("nothing waits").is_none());
        std::fs::write(&state, "{}").expect("written");
        assert!(load(&state).expect_err("no state").to_string().contains("does not hold the state"));
    }
}
