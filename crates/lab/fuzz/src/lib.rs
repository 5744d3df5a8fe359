//! fuzz: random and mutated input for every parser, from one seed, on the stable toolchain.
//!
//! ```text
//!   seeds/, corpora --> Pool --> Mutator (seed, number) --> input --> target, under catch_unwind
//!                                                              |
//!                                                   a panic, a hang, a signal
//!                                                              v
//!                                              fuzz/artifacts/TARGET-HASH + replay command
//! ```
//!
//! Invariants:
//!
//! 1. Input number `n` of a target depends on the seed, `n` and the pool, and on nothing else. No coverage is fed back,
//!    so any input can be made again without the ones before it.
//! 2. A failure always leaves its input in a file. A failure that cannot be caught in the process (stack overflow, a
//!    hang, a kill) is detected by the parent, which runs the same inputs again and writes each to a file before it is
//!    tried.
//! 3. A target is a plain function of bytes in the crate that owns the parser; it may refuse its input, never panic.
//!
//! Coverage-guided runs of the same functions are in the folder `fuzz/` at the root; they need nightly.

#![forbid(unsafe_code)]

pub mod mutator;
pub mod pool;
pub mod seeds;
pub mod session;
pub mod stored;
pub mod supervisor;
pub mod targets;
