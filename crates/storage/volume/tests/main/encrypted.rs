//! The tests of volumes again, with encryption, and those of encryption itself. What a volume promises does not depend on it.

mod basics;
mod crash;
mod damage;
mod failures;
mod fences;
mod full;
mod handed;
mod hanging;
mod opening;
mod pitfalls;
mod resync;
mod rig;
mod rival;
mod sealed;
mod support;
mod thin;
mod threads;
mod waiting;
