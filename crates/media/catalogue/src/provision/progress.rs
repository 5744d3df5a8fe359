//! How far a plan has come: what runs next, across the restart that a goal needs.
//!
//! ```text
//!             completed(output)                 completed              next boot
//!   Run(1) -----------------------> Run(2) --------------> Restart ----------------> Run(4) ... Finished
//!     | it failed                                          | same boot
//!     v                                                    v
//!   stays Run(1): nothing after it ran                  Restart: pending
//! ```
//!
//! A restart has happened when the kernel's boot id is another than when the restart came up. The state is plain data:
//! whoever runs the steps writes it to a file after each, and reads it when asked to go on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ProvisionError;
use super::machine::Machine;
use super::plan::Plan;
use super::steps::Step;

/// A plan and how much of it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    plan: Plan,
    done: usize,
    /// Boot id when the restart came up; `None` while none is due.
    boot: Option<String>,
    /// Names that ndctl answered, over those expected.
    names: BTreeMap<String, String>,
}

/// What is next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Do this.
    Do(Step),
    /// Wait for the machine to be switched off and on.
    Restart,
    /// Nothing.
    Finished,
}

impl Progress {
    /// At the beginning of a plan.
    pub fn new(plan: Plan) -> Progress {
        let names = plan.names.clone();
        Progress { plan, done: 0, boot: None, names }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Steps done, of how many.
    pub fn steps(&self) -> (usize, usize) {
        (self.done, self.plan.steps.len())
    }

    /// Names of devices as far as they are known.
    pub fn names(&self) -> &BTreeMap<String, String> {
        &self.names
    }

    /// Whether a goal waits for a restart that has not happened in the boot named.
    pub fn is_pending(&self, boot: &str) -> bool {
        self.boot.as_deref() == Some(boot)
    }

    /// What is next in the boot named (`/proc/sys/kernel/random/boot_id`).
    pub fn next(&mut self, boot: &str) -> Next {
        loop {
            match self.plan.steps.get(self.done) {
                None => return Next::Finished,
                Some(Step::Restart) => match &self.boot {
                    None => self.boot = Some(boot.to_owned()),
                    Some(before) if before == boot => return Next::Restart,
                    Some(_) => {
                        self.boot = None;
                        self.done += 1;
                    }
                },
                Some(step) => return Next::Do(step.clone()),
            }
        }
    }

    /// Whether the machine can take the step that is next: the region it divides is there.
    ///
    /// Errors: [`ProvisionError::Refused`] where the firmware has not made it.
    pub fn check(&self, machine: &Machine) -> Result<(), ProvisionError> {
        let Some(Step::Run(command)) = self.plan.steps.get(self.done) else { return Ok(()) };
        let Some(region) = &command.region else { return Ok(()) };
        if machine.regions.iter().any(|found| found.name == *region) {
            return Ok(());
        }
        Err(ProvisionError::refused(
            format!(
                "{region} is not there: the firmware has not granted the goal, or the machine was only rebooted warm"
            ),
            "switch it off and on; ipmctl show -goal and ipmctl show -pcd say why a goal was refused; terrace tier apply --discard forgets the plan",
        ))
    }

    /// Takes note that the step that was next is done, and of the device that its output names.
    ///
    /// Errors: [`ProvisionError::Malformed`] where a namespace was made and the output does not name its device.
    pub fn completed(&mut self, output: &str) -> Result<(), ProvisionError> {
        if let Some(Step::Run(command)) = self.plan.steps.get(self.done)
            && let Some(slot) = &command.answers
        {
            let device = device_named(output).ok_or_else(|| {
                let program = &command.words[0];
                ProvisionError::Malformed(format!("{program} did not say which device it made: {}", output.trim()))
            })?;
            self.names.insert(slot.clone(), device);
        }
        self.done += 1;
        Ok(())
    }
}

/// The `blockdev` or `chardev` of what `ndctl create-namespace` prints; the device-DAX of the `region` that `cxl create-region`
/// prints, which the kernel numbers alike.
fn device_named(output: &str) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_str(output.trim()).ok()?;
    if let Some(number) = answer.get("region").and_then(|region| region.as_str()?.strip_prefix("region")) {
        return number.parse::<u32>().ok().map(|number| format!("dax{number}.0"));
    }
    let block = answer.get("blockdev").and_then(|name| name.as_str());
    let character = || answer.pointer("/daxregion/devices/0/chardev").and_then(|name| name.as_str());
    let name = block.or_else(character).or_else(|| answer.get("chardev").and_then(|name| name.as_str()))?;
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
    is_plain.then(|| name.to_owned())
}
