//! What the keeper does for a volume that is open: copies that were away are attached, a place whose medium has failed is closed.
//!
//! Invariant: nothing here waits for a medium but what its text says; the keeper itself asks only [`HostedVolume::needs_care`].

use std::sync::atomic::Ordering;
use std::time::Instant;

use nbd::EpochGate;
use volume::{CopyState, Volume, VolumeError};

use super::super::description::CopyDescription;
use super::super::place_health::PlaceHealth;
use super::super::places;
use super::{HostedVolume, OpenDevice, PAUSE, PAUSE_MAX, Retry, lock};
use crate::assemble::TierShelves;

impl HostedVolume {
    /// Whether a copy is away and its pause is over, or a place that it has left is to be cleared; of a place, whether its medium may have
    /// failed, with so many `errors` of its export. It waits for no medium.
    pub fn needs_care(&self, errors: u64) -> bool {
        let volume = match self.opened() {
            Some(OpenDevice::Mirror(volume)) => volume,
            Some(OpenDevice::Place(_, epochs)) => {
                return lock(&self.health).is_suspicious(errors, epochs.failure().is_some());
            }
            None => return false,
        };
        let is_away = |state: &CopyState| matches!(state, CopyState::Missing | CopyState::Out { .. });
        let mut away = volume.status().copies.into_iter().filter(|copy| is_away(&copy.state));
        let hosted = lock(&self.hosted);
        let is_due = |number: u8| {
            hosted.copies[usize::from(number)].failed.as_ref().is_none_or(|retry| Instant::now() >= retry.not_before)
        };
        away.any(|copy| is_due(copy.number)) || !self.description().retired.is_empty()
    }

    /// Whether nobody looked after it until now: the caller does, until [`end_care`](HostedVolume::end_care).
    pub fn begin_care(&self) -> bool {
        !self.is_cared_for.swap(true, Ordering::AcqRel)
    }

    /// Ends what [`begin_care`](HostedVolume::begin_care) began.
    pub fn end_care(&self) {
        self.is_cared_for.store(false, Ordering::Release);
    }

    /// Why the place is to be closed, since its medium has failed; `None` of anything else. It waits for the medium.
    pub fn failed_medium(&self, errors: u64) -> Option<String> {
        let Some(OpenDevice::Place(device, epochs)) = self.opened() else { return None };
        if let Some(why) = lock(&self.health).failed() {
            return Some(why.to_owned());
        }
        let found = PlaceHealth::examine(&*device, epochs.failure());
        lock(&self.health).note(found.as_deref(), errors, epochs.current());
        found
    }

    /// Closes a place whose medium has failed; it is opened again after a pause. The caller holds
    /// [`operation`](HostedVolume::operation) and has ended its export.
    pub fn give_up_medium(&self, why: &str) {
        if let Some(OpenDevice::Place(_, epochs)) = self.opened() {
            // The highest one is known only now that its sessions have ended.
            lock(&self.health).note(Some(why), 0, epochs.current());
        }
        // It refuses this too.
        let _ = self.close();
        let (now, mut health) = (Instant::now(), lock(&self.health));
        let pause = health.closed(now, PAUSE, PAUSE_MAX);
        let why = format!("its medium has failed, and is opened again in {} s: {why}", pause.as_secs());
        lock(&self.hosted).failed = Some(Retry { why, not_before: now + pause, pause });
    }

    /// Attaches copies that are away, if their pause is over. Returns whether the volume has to be opened anew for that: it was opened
    /// with too few copies, and there are more now.
    pub fn attach_copies(&self, tiers: &TierShelves) -> bool {
        let Some(OpenDevice::Mirror(volume)) = self.opened() else { return false };
        let description = self.description();
        let mut needs_opening = false;
        for copy in volume.status().copies {
            let number = usize::from(copy.number);
            if !matches!(copy.state, CopyState::Missing | CopyState::Out { .. }) {
                continue;
            }
            let former = lock(&self.hosted).copies[number].failed.clone();
            let is_due = former.as_ref().is_none_or(|retry| Instant::now() >= retry.not_before);
            let Some(place) = description.copies.get(number).filter(|_| is_due) else { continue };
            let error = match self.attach(tiers, &volume, number, place) {
                Ok(()) => {
                    tracing::info!(volume = description.name, copy = number, "a copy is attached again");
                    self.note_copy(number, None);
                    continue;
                }
                Err(error) => error,
            };
            if matches!(error.downcast_ref(), Some(VolumeError::BelowMinimum { .. })) {
                needs_opening |= copy.state == CopyState::Missing;
            }
            let why = format!("{error:#}");
            // The same reason again is no news.
            if former.is_none_or(|former| former.why != why) {
                tracing::warn!(volume = description.name, copy = number, why, "a copy cannot be attached");
            }
            self.note_copy(number, Some(why));
        }
        needs_opening
    }

    fn attach(
        &self,
        tiers: &TierShelves,
        volume: &Volume,
        number: usize,
        place: &CopyDescription,
    ) -> anyhow::Result<()> {
        let opened = places::open(tiers, place, None)?;
        self.note_medium(number, &opened);
        volume.attach_copy(number as u8, opened.place)?;
        Ok(())
    }
}
