//! Tests of the whole catalogue: figures, models, shelves that simulate their timing, calibration.

mod calibration;
mod shelf;
