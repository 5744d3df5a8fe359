//! How long an operation takes on a mix, and how many there can be, by operational laws: mean value analysis for a number of sessions
//! (Reiser and Lavenberg, "Mean-value analysis of closed multichain queuing networks", 1980), the utilisation law for a given rate.
//!
//! ```text
//!   station     what all operations share: the processors, far memory, the device
//!     busy      seconds of it that one operation takes; others wait meanwhile
//!     delay     seconds that pass beside it, which overlap with those of others
//!   servers     of m equal servers, one with busy / m, and a delay of the rest (Seidmann et al., 1987)
//! ```
//!
//! These are means: there is no tail in them.

use crate::PlanError;

/// Sessions at most: the analysis takes a step for each.
const SESSIONS_MAX: u32 = 1 << 20;

/// Something that all operations share.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadStation {
    /// Its name, for people.
    pub name: String,
    /// Seconds of one server that an operation takes.
    pub busy_s: f64,
    /// Equal servers, at least 1.
    pub servers: u32,
    /// Seconds beside it that keep nobody else waiting.
    pub delay_s: f64,
}

impl LoadStation {
    /// Seconds between operations when it is the only limit.
    fn queued_s(&self) -> f64 {
        self.busy_s / f64::from(self.servers.max(1))
    }

    /// Seconds that pass even if nobody else is there, beside [`LoadStation::queued_s`].
    fn apart_s(&self) -> f64 {
        self.busy_s - self.queued_s() + self.delay_s
    }
}

/// What is to be expected.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// Operations per second.
    pub rate: f64,
    /// Mean time of an operation, seconds.
    pub time_s: f64,
    /// The number of the station that is busiest: nothing but more of it makes the rate higher.
    pub binds: usize,
    /// Part of each station's time that is in use, 0 to 1.
    pub used: Vec<f64>,
}

impl Predicted {
    /// What the busiest station has left, 0 to 1.
    pub fn spare(&self) -> f64 {
        1.0 - self.used.get(self.binds).copied().unwrap_or(0.0)
    }
}

fn check(stations: &[LoadStation]) -> Result<(), PlanError> {
    let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
    if stations.iter().any(|station| !is_time(station.busy_s) || !is_time(station.delay_s) || station.servers == 0) {
        return Err(PlanError::Refused("a station has a time that is none, or no server".into()));
    }
    if stations.iter().all(|station| station.busy_s == 0.0) {
        return Err(PlanError::Refused("an operation needs nothing at all".into()));
    }
    Ok(())
}

/// The result at this rate.
fn predicted(stations: &[LoadStation], rate: f64, time_s: f64) -> Predicted {
    let used: Vec<f64> = stations.iter().map(|station| (rate * station.queued_s()).min(1.0)).collect();
    let binds = (0..used.len()).max_by(|one, two| used[*one].total_cmp(&used[*two]).then(two.cmp(one))).unwrap_or(0);
    Predicted { rate, time_s, binds, used }
}

/// So many sessions, each of which makes an operation, then thinks for `think_s` seconds, then makes the next one.
///
/// # Errors
/// Times or numbers that are impossible.
pub fn closed(stations: &[LoadStation], sessions: u32, think_s: f64) -> Result<Predicted, PlanError> {
    check(stations)?;
    if !((1..=SESSIONS_MAX).contains(&sessions) && think_s.is_finite() && think_s >= 0.0) {
        return Err(PlanError::Refused(format!("{sessions} sessions that think for {think_s} s")));
    }
    let apart_s: f64 = stations.iter().map(LoadStation::apart_s).sum();
    let mut waiting = vec![0.0; stations.len()];
    let (mut rate, mut time_s) = (0.0, 0.0);
    for session in 1..=sessions {
        // Who arrives finds the queues of one session less.
        let times: Vec<f64> =
            stations.iter().zip(&waiting).map(|(station, others)| station.queued_s() * (1.0 + others)).collect();
        time_s = apart_s + times.iter().sum::<f64>();
        rate = f64::from(session) / (think_s + time_s);
        waiting = times.iter().map(|time| rate * time).collect();
    }
    Ok(predicted(stations, rate, time_s))
}

/// So many operations per second, whenever they come.
///
/// # Errors
/// Times that are impossible; a station that cannot do so many, with its name and how many it can.
pub fn open(stations: &[LoadStation], rate: f64) -> Result<Predicted, PlanError> {
    check(stations)?;
    if !(rate.is_finite() && rate > 0.0) {
        return Err(PlanError::Refused(format!("{rate} operations per second")));
    }
    let mut time_s = 0.0;
    for station in stations {
        let queued_s = station.queued_s();
        let used = rate * queued_s;
        if used >= 1.0 {
            let (name, most) = (&station.name, 1.0 / queued_s);
            return Err(PlanError::Refused(format!("{name}: at most {most:.0} operations per second, not {rate:.0}")));
        }
        time_s += station.apart_s() + queued_s / (1.0 - used);
    }
    Ok(predicted(stations, rate, time_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn station(name: &str, busy_s: f64, servers: u32, delay_s: f64) -> LoadStation {
        LoadStation { name: name.into(), busy_s, servers, delay_s }
    }

    fn near(one: f64, two: f64) -> bool {
        (one - two).abs() <= 1e-9 * two.abs().max(1e-9)
    }

    /// Worked by hand. One session: R = 0.1 + 0.05 = 0.15, X = 1 / 0.15; queues 2/3 and 1/3. Two: R = 0.1 * 5/3 + 0.05 * 4/3 = 7/30,
    /// X = 60/7; queues 10/7 and 4/7. Three: R = 0.1 * 17/7 + 0.05 * 11/7 = 2.25/7, X = 28/3.
    #[test]
    fn sessions_are_served_as_worked_by_hand() {
        let stations = [station("processor", 0.1, 1, 0.0), station("device", 0.05, 1, 0.0)];
        for (sessions, time_s, rate) in
            [(1, 0.15, 1.0 / 0.15), (2, 7.0 / 30.0, 60.0 / 7.0), (3, 2.25 / 7.0, 28.0 / 3.0)]
        {
            let got = closed(&stations, sessions, 0.0).expect("possible");
            assert!(near(got.time_s, time_s) && near(got.rate, rate), "{sessions}: {got:?}");
            assert_eq!(got.binds, 0);
        }
        let many = closed(&stations, 1000, 0.0).expect("possible");
        assert!(near(many.rate, 10.0) && near(many.used[1], 0.5) && many.spare() < 1e-6, "{many:?}");
    }

    /// Four processors with 0.4 s are one with 0.1 s and a delay of 0.3 s; a pause of 0.2 s and a delay of 0.35 s add to that:
    /// one session makes 1 / (0.4 + 0.05 + 0.35 + 0.2).
    #[test]
    fn servers_delays_and_pauses_are_added_without_a_queue() {
        let stations = [station("processors", 0.4, 4, 0.0), station("device", 0.05, 1, 0.35)];
        let one = closed(&stations, 1, 0.2).expect("possible");
        assert!(near(one.rate, 1.0) && near(one.time_s, 0.8), "{one:?}");
        assert!(near(one.used[0], 0.1) && near(one.used[1], 0.05), "{one:?}");
        let many = closed(&stations, 10_000, 0.2).expect("possible");
        assert!(near(many.rate, 10.0), "0.4 s on four processors: {many:?}");
    }

    /// At 5 a second the processor is used half: 0.1 / 0.5; the device a quarter: 0.05 / 0.75; and 0.01 s beside it.
    #[test]
    fn a_rate_is_served_as_worked_by_hand_or_refused_with_what_binds() {
        let stations = [station("processor", 0.1, 1, 0.0), station("device", 0.05, 1, 0.01)];
        let got = open(&stations, 5.0).expect("possible");
        assert!(near(got.time_s, 0.2 + 0.05 / 0.75 + 0.01) && near(got.spare(), 0.5), "{got:?}");
        let error = open(&stations, 10.0).expect_err("too many").to_string();
        assert_eq!(error, "processor: at most 10 operations per second, not 10");
        for bad in [f64::NAN, 0.0, -1.0] {
            assert!(open(&stations, bad).is_err(), "{bad}");
        }
        assert!(closed(&stations, 0, 0.0).is_err() && closed(&stations, 1, f64::INFINITY).is_err());
        assert!(closed(&[station("none", 0.0, 1, 0.0)], 1, 0.0).is_err() && open(&[], 1.0).is_err());
        assert!(open(&[station("none", 1.0, 0, 0.0)], 0.1).is_err());
    }
}
