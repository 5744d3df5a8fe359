//! Seeds of every build; more with `cargo run --release -p volume --features simulation --example volume_simulation`.

use super::{Report, Rule, leave_out, run};

/// Seeds that run with each build.
const SEEDS: u64 = 150;

#[test]
fn no_seed_loses_an_acknowledged_write_reads_an_old_state_or_leaves_copies_that_differ() {
    let mut all = Report::default();
    for seed in 0..SEEDS {
        all.add(&run(seed).unwrap_or_else(|why| panic!("{why}")));
    }
    println!("{all}");
    for what in
        ["openings", "joined", "owners paused", "owners killed in the middle", "media lost", "damaged", "blocks sealed"]
    {
        assert!(all.of(what) > 0, "{what} never happened");
    }
}

/// Runs seeds without a rule until one is violated.
fn fails_without(rule: Rule) {
    leave_out(Some(rule));
    let failing = (0..400).find_map(|seed| run(seed).err());
    leave_out(None);
    println!("{}", failing.unwrap_or_else(|| panic!("{rule:?} is not needed, or the simulation is too weak")));
}

#[test]
fn an_acknowledgement_of_one_copy_alone_is_noticed() {
    fails_without(Rule::AllInSync);
}

#[test]
fn an_exclusion_that_is_not_recorded_is_noticed() {
    fails_without(Rule::ExclusionFirst);
}

#[test]
fn copies_that_a_new_owner_does_not_make_equal_are_noticed() {
    fails_without(Rule::Equal);
}

#[test]
fn a_copy_that_does_not_refuse_a_replaced_owner_is_noticed() {
    fails_without(Rule::Fencing);
}

#[test]
fn a_copy_that_joins_before_it_is_up_to_date_is_noticed() {
    fails_without(Rule::Rejoin);
}
