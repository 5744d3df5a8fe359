//! What the catalogue promises as a whole: figures, models, shelves slowed to them, calibration.

mod calibration;
mod shelf;
