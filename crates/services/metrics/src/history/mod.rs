//! The history of a node's figures, kept in its store, so that last night can be looked at where nobody had set anything up.
//!
//! ```text
//!   Samples, every 10 s --SeriesReader--> values by series --HistoryStore--> a row of the finest ring, durable
//!                                                                |
//!                                             a bucket of a coarser ring, once it is over, from the next finer one
//! ```
//!
//! | points of | kept for | how many |
//! |---|---|---|
//! | 10 seconds | an hour | 360 |
//! | a minute | 25 hours | 1,500 |
//! | 15 minutes | 8 days | 768 |
//! | an hour | 35 days | 840 |
//! | a day | 400 days | 400 |
//!
//! Invariants: at most [`SERIES_MAX`] series at a time and 3,868 rows, 16 bytes for each series and row: 12.4 MB; a crash loses what came
//! since the last row of 10 seconds, also of the coarser rings, because they are made from stored rows; a medium that hangs holds up this
//! history and nothing else. Names are of the configuration, values are figures: nothing of a message.

mod keeper;
mod rows;
mod series;
mod stored;

pub use keeper::HistoryKeeper;
pub use rows::{HistoryPoint, HistoryRange};
pub use series::SERIES_MAX;
pub use stored::{HistoryStore, SeriesInfo};
