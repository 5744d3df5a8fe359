//! The progress of a plan: the next step, across the restart that a goal needs.
//!
//! ```text
//!             completed(output)                 completed              next boot
//!   Run(1) -----------------------> Run(2) --------------> Restart ----------------> Run(4) ... Finished
//!     | it failed                                          | same boot
//!     v                                                    v
//!   stays Run(1): nothing after it ran                  Restart: pending
//! ```
//!
//! A restart has happened if the kernel's boot id differs from the one at which the restart was requested. The state is
//! plain data: the program that runs the steps writes it to a file after each, and reads it when it continues.

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
    /// Boot id when the restart was requested; `None` while none is due.
    boot: Option<String>,
    /// Names returned by ndctl, which override the expected ones.
    names: BTreeMap<String, String>,
}

/// The next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Do this.
    Do(Step),
    /// Wait until the machine was switched off and on.
    Restart,
    /// Nothing.
    Finished,
}

impl Progress {
    /// The beginning of a plan.
    pub fn new(plan: Plan) -> Progress {
        let names = plan.names.clone();
        Progress { plan, done: 0, boot: None, names }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Number of completed steps, and of all steps.
    pub fn steps(&self) -> (usize, usize) {
        (self.done, self.plan.steps.len())
    }

    /// Names of devices, as far as they are known.
    pub fn names(&self) -> &BTreeMap<String, String> {
        &self.names
    }

    /// Whether a goal waits for a restart that has not happened in the given boot.
    pub fn is_pending(&self, boot: &str) -> bool {
        self.boot.as_deref() == Some(boot)
    }

    /// Returns the next action in the given boot (`/proc/sys/kernel/random/boot_id`).
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

    /// Checks that the machine is ready for the next step: the region that it divides must exist.
    ///
    /// Errors: [`ProvisionError::Refused`] if the firmware has not created it.
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

    /// Records that the next step is complete, and the device that its output names.
    ///
    /// Errors: [`ProvisionError::Malformed`] if a namespace was created and the output does not name its device.
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

/// The `blockdev` or `chardev` in the output of `ndctl create-namespace`; or the device-DAX of the `region` in the
/// output of `cxl create-region`, which the kernel gives the same number.
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
