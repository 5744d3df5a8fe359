//! The rules of [`crate::membership`], so that a test can leave out one of them and show that it is needed.
//!
//! In the product every rule is obeyed: the function is a constant there.

/// One of the rules.
#[cfg_attr(not(any(test, feature = "simulation")), expect(unreachable_pub, reason = "public for the simulation"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// 1: acknowledged when durable on every copy in sync.
    AllInSync = 1,
    /// 2: exclusion is recorded before the next acknowledgement.
    ExclusionFirst = 2,
    /// 3: a new owner makes the copies equal before it serves.
    Equal = 3,
    /// 4: a copy refuses an owner with a lower term than it has promised.
    Fencing = 4,
    /// 5: a copy that was out is brought up to date before it joins.
    Rejoin = 5,
}

#[cfg(any(test, feature = "simulation"))]
thread_local! {
    static LEFT_OUT: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) };
}

/// Leaves out a rule on this thread, until it is called again.
#[cfg(any(test, feature = "simulation"))]
pub fn leave_out(rule: Option<Rule>) {
    LEFT_OUT.with(|left_out| left_out.set(rule));
}

/// Whether the rule holds.
#[cfg(any(test, feature = "simulation"))]
pub(crate) fn obeys(rule: Rule) -> bool {
    LEFT_OUT.with(std::cell::Cell::get) != Some(rule)
}

/// Whether the rule holds.
#[cfg(not(any(test, feature = "simulation")))]
#[inline]
pub(crate) const fn obeys(_: Rule) -> bool {
    true
}
