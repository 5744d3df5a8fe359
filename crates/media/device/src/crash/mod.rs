//! A simulated machine that records what is written and can lose power at any moment of the recording.
//!
//! ```text
//!   engine under test --- Shelf / Device ---> CrashShelf
//!                                               live content: what reads see
//!                                               trace: 0 create a | 1 write a | 2 write a | 3 flush a | 4 write a ...
//!                                                                        ^
//!   images(2): power fails while operation 2 is in flight  ------------ -+
//!      persistent: the zeros that create made      un-flushed: writes 1 and 2
//!      -> none | all | each alone | all but one | torn | random subsets | random sectors      each a fresh CrashShelf
//! ```
//!
//! The idea is that of dm-log-writes (docs.kernel.org/admin-guide/device-mapper/log-writes.html) and of ALICE (Pillai et
//! al., OSDI 2014) without a kernel: run the workload once, then open every state in which a power failure could
//! have left the medium, and let the engine recover from each.
//!
//! # Points
//!
//! Point `p` is the moment at which operation `p` has been called and has not returned; point [`CrashShelf::operations`]
//! is the end. That is every moment there is: the state between the return of one operation and the call of the next is
//! among the images of the next one's point, as the image in which nothing of it was kept. What an engine had acknowledged
//! when `operations()` was `n` must be found again at every point `p >= n`.
//!
//! # What an image may hold
//!
//! What rules 1 to 6 of [`crate::contract`] leave open, and nothing else. An un-flushed write may be there, or
//! not, or in part, sector by sector, regardless of its order among the other un-flushed writes; sectors that were written
//! twice may come back with the older write. What a returned flush covers is in every image. A name operation that has
//! returned is in every image; the one in flight is in some.
//!
//! # How tests use it
//!
//! * [`CrashShelf::images`] enumerates the images of a point; each [`Image`] prints how to get it again
//! * [`Image::shelf`] is a fresh shelf that records in its turn: a crash during recovery is the same call once more
//! * [`CrashShelf::crash_at`] makes the machine die under a running engine, at the n-th operation
//! * a killed process is no power failure: forget the engine and open it again on the same shelf
//!
//! # What it does not do
//!
//! It does not schedule threads: with several, the recording differs from run to run (each recording is still exhausted).
//! It does not damage what was persistent: that is what [`crate::faulty`] does.

mod content;
mod image;
mod shelf;
mod trace;

pub use image::{Image, Images};
pub use shelf::CrashShelf;
pub use trace::Step;
