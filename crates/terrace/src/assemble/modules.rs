//! Checks whether a model has more modules than a machine can have: this is allowed, since a model is for hardware that
//! the machine does not have, and logged, since the figures are then those of several sockets, or of no machine.

use catalogue::Medium;
use catalogue::provision::machine::Slots;

/// A sentence about an unusual number of `modules` of a medium on a tier; `slots` are those of this machine, if its
/// firmware reports them.
pub(super) fn doubt(tier: &str, medium: &Medium, modules: u32, slots: Option<Slots>) -> Option<String> {
    // Drives are striped over as many as there are bays; slots are for memory.
    if !medium.kind.is_addressed() || modules <= medium.modules {
        return None;
    }
    let (name, usual) = (&medium.name, medium.modules);
    let sockets = modules.div_ceil(usual);
    let here = match slots {
        Some(slots) if modules > slots.all => {
            format!(", and this machine has {} slots for all of its memory", slots.all)
        }
        _ => String::new(),
    };
    Some(format!(
        "tier {tier} is modelled with modules = {modules}: a socket takes {usual} of {name}{here}; its bandwidth is that of {sockets} \
         sockets as one, which no program on one socket gets"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_modules_than_a_socket_or_this_machine_takes_are_said_and_as_many_as_usual_are_not() {
        let of = |name: &str, modules: u32, slots: Option<Slots>| {
            doubt("pm", &Medium::find(name).expect("built in"), modules, slots)
        };
        let twelve = Some(Slots { all: 12, dram: 6, persistent: 6 });
        assert_eq!(of("dcpmm100-128g", 6, twelve), None);
        assert_eq!(of("optane-p4800x", 24, twelve), None, "drives have no slots");
        let said = of("dcpmm100-128g", 24, twelve).expect("said");
        for part in
            ["modules = 24: a socket takes 6 of dcpmm100-128g", "this machine has 12 slots", "that of 4 sockets as one"]
        {
            assert!(said.contains(part), "{said}");
        }
        let said = of("dcpmm100-128g", 12, None).expect("said");
        assert!(said.contains("2 sockets as one") && !said.contains("slots"), "{said}");
    }
}
