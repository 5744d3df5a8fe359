//! The targets: every function that reads bytes from outside, with what a good input for it looks like.

/// One target.
pub struct Target {
    /// What it is called on the command line and in the names of artifacts.
    pub name: &'static str,
    /// Feeds it one input; panics only if a promise of the code under test is broken.
    pub run: fn(&[u8]),
    /// Built-in inputs.
    pub seeds: &'static [&'static [u8]],
    /// Extensions of files that are inputs too.
    pub extensions: &'static [&'static str],
    /// Short strings that mean something in its format.
    pub words: &'static [&'static str],
}

/// Every target.
pub const TARGETS: &[Target] = &[];

/// A target with a planted fault: a doubled delimiter in a message that still starts as one. It proves that the fuzzer
/// finds faults, and is only run when named.
pub const CANARY: Target = Target {
    name: "canary",
    run: |input| assert!(!has_planted_fault(input), "the planted fault was found"),
    seeds: &[b"MSH|a|b\r", b"PID|c\r"],
    extensions: &[],
    words: &["|", "^"],
};

/// The canary with a fault that cannot be caught in the process; only run when named.
pub const CANARY_ABORT: Target = Target {
    name: "canary-abort",
    run: |input| {
        if has_planted_fault(input) {
            std::process::abort();
        }
    },
    ..CANARY
};

fn has_planted_fault(input: &[u8]) -> bool {
    input.starts_with(b"MSH") && input.windows(2).any(|pair| pair == b"||")
}

/// The target called `name`.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().chain([&CANARY, &CANARY_ABORT]).find(|target| target.name == name)
}
