//! The time limit of a frame: it must be complete within a time, or grow by another [`STEP_BYTES`] in it.
//!
//! So a message over a slow link has all the time that it needs, but single bytes at intervals are not enough. An
//! oversize frame that is skipped does not grow: it gets that time once.

use std::time::Duration;

use tokio::time::Instant;

/// Growth that earns a frame its time anew. With the default of a minute, 17 KiB/s: below that a message of 16 MiB would take
/// a quarter of an hour.
const STEP_BYTES: usize = 1 << 20;

/// The clock of the frame that a connection is at. Pure: the time is handed in.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the frame began or last grew by a step, and how long it was then. None between frames.
    frame: Option<(Instant, usize)>,
}

impl Pace {
    /// Looks at the decoder after all events of a read: whether one of them was a frame's end, whether it is inside a frame, and
    /// how many bytes of that it has.
    pub(super) fn look(&mut self, ended: bool, inside: bool, bytes: usize, now: impl FnOnce() -> Instant) {
        match self.frame {
            _ if !inside => self.frame = None,
            Some((_, mark)) if !ended && bytes < mark + STEP_BYTES => {}
            _ => self.frame = Some((now(), bytes)),
        }
    }

    /// Until when the frame must have ended or grown; none between frames.
    pub(super) fn deadline(&self, timeout: Duration) -> Option<Instant> {
        self.frame.and_then(|(since, _)| since.checked_add(timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_time_from_its_first_byte_and_anew_for_each_mebibyte() {
        const MIB: usize = 1 << 20;
        let begin = Instant::now();
        let mut pace = Pace::default();
        // Second, whether a frame ended, whether one is begun, its bytes; until when it has time.
        let table = [
            (0, false, false, 0, None),
            (1, false, true, 1, Some(61)),
            (50, false, true, 2, Some(61)),
            (60, false, true, MIB, Some(61)),
            (60, false, true, MIB + 1, Some(120)),
            (90, false, true, 2 * MIB, Some(120)),
            (91, false, true, 4 * MIB, Some(151)),
            // A frame begun again inside this one gets no time of its own.
            (92, false, true, 5, Some(151)),
            (93, true, true, 5, Some(153)),
            (94, true, false, 0, None),
            (95, true, true, 0, Some(155)),
        ];
        for (second, ended, inside, bytes, expected) in table {
            pace.look(ended, inside, bytes, || begin + Duration::from_secs(second));
            let deadline = pace.deadline(Duration::from_secs(60)).map(|at| (at - begin).as_secs());
            assert_eq!(deadline, expected, "second {second}");
        }
    }
}
