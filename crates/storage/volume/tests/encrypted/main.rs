//! The tests of volumes again, with encryption, and those of encryption itself. What a volume promises does not depend on it.

#[path = "../main/basics.rs"]
mod basics;
#[path = "../main/crash.rs"]
mod crash;
#[path = "../main/damage.rs"]
mod damage;
#[path = "../main/failures.rs"]
mod failures;
#[path = "../main/fences.rs"]
mod fences;
#[path = "../main/full.rs"]
mod full;
#[path = "../main/handed.rs"]
mod handed;
#[path = "../main/hanging.rs"]
mod hanging;
#[path = "../main/opening.rs"]
mod opening;
#[path = "../main/pitfalls.rs"]
mod pitfalls;
#[path = "../main/resync.rs"]
mod resync;
#[path = "../main/rig.rs"]
mod rig;
#[path = "../main/rival.rs"]
mod rival;
mod sealed;
#[path = "../main/support.rs"]
mod support;
#[path = "../main/thin.rs"]
mod thin;
#[path = "../main/threads.rs"]
mod threads;
#[path = "../main/waiting.rs"]
mod waiting;
