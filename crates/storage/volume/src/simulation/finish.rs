//! The end of a run: everything works again, and all copies must become equal and have what was acknowledged.

use std::sync::Arc;

use device::{BLOCK_BYTES, Device, DeviceError};

use super::server::Link;
use super::world::{BLOCKS, Owner, World, attach};
use crate::error::VolumeError;
use crate::membership::needed;
use crate::{CopyState, Options, Place, Step, Volume};

/// More steps than bringing a copy up to date takes.
const STEPS: usize = 100;

const BLOCK: u64 = BLOCK_BYTES as u64;

impl World {
    pub(super) fn finish(self: &Arc<World>) -> Result<(), String> {
        self.kill_all();
        self.servers.iter().for_each(|server| server.works());
        self.event("everything works again".to_owned());
        let (owner, volume) = self.bring_all_back()?;
        self.check_blocks(&owner, &volume)?;
        self.check_media(&owner, &volume)?;
        drop(volume);
        self.power_fails(&(0..self.servers.len()).collect::<Vec<_>>());
        if self.copies > needed(self.copies, self.min_copies) {
            for away in 0..self.copies as usize {
                self.check_without(away)?;
            }
        }
        Ok(())
    }

    /// Opens the volume with all copies there, and brings each up to date.
    fn bring_all_back(self: &Arc<World>) -> Result<(Arc<Owner>, Volume), String> {
        let mut accept_loss = false;
        for _ in 0..4 {
            let owner = self.new_owner();
            let places: Vec<Place> = owner.links.iter().map(Link::place).collect();
            let options = Options { accept_loss, ..self.options(owner.id) };
            let looks: Vec<String> = places.iter().map(|place| format!("{:?}", crate::copy::peek(place))).collect();
            let volume = Volume::open(places, options)
                .map_err(|error| format!("at the end: {error}\nsuperblocks: {looks:#?}"))?;
            self.opened(&owner, &volume);
            for copy in 0..self.copies {
                if volume.status().copies[copy as usize].state == CopyState::InSync {
                    continue;
                }
                let attached = attach(&volume, &owner.links[copy as usize], copy);
                self.event(format!("at the end {copy} is brought back: {attached:?}"));
                for _ in 0..STEPS {
                    if attached.is_err() {
                        break;
                    }
                    match volume.resync_step(copy) {
                        Ok(Step::Copied { .. }) => {}
                        Ok(Step::Joined) => break,
                        // As the error says, it is written anew. If too few copies are left to write, they must be accepted.
                        Err(VolumeError::Damaged { .. }) if !volume.status().is_frozen => {
                            self.check_blocks(&owner, &volume)?;
                        }
                        Err(VolumeError::Damaged { offset, .. }) if self.is_tainted(offset / BLOCK) => {
                            self.count("damaged on the last copy");
                            accept_loss = true;
                            break;
                        }
                        Err(error) => {
                            self.event(format!("at the end {copy} does not join: {error}"));
                            break;
                        }
                    }
                }
            }
            if volume.status().copies.iter().all(|copy| copy.state == CopyState::InSync) {
                return Ok((owner, volume));
            }
            self.event(format!("not all came back: {:?}", volume.status().copies));
            // Of a medium that is lost nobody knows whether it had recorded a set without one of the others: a person decides.
            accept_loss |= self.report.lock().of("media lost") > 0;
        }
        Err("at the end not all copies come back".to_owned())
    }

    fn opened(&self, owner: &Owner, volume: &Volume) {
        let term = owner.links.iter().map(|link| link.term()).max().unwrap_or(0);
        self.history.lock().opened(owner.id, term, volume.status().is_frozen);
    }

    /// Every block can be read and has a value that it may have.
    fn check_blocks(&self, owner: &Owner, volume: &Volume) -> Result<(), String> {
        let mut bytes = vec![0; BLOCK_BYTES];
        for block in 0..BLOCKS {
            match volume.read(block * BLOCK, &mut bytes) {
                Ok(()) => self.note(owner.id, block, &bytes),
                Err(DeviceError::Lost { .. }) if self.is_tainted(block) => {
                    self.count("damaged on every copy that was left");
                    self.history.lock().issue(owner.id, block, (0, 0));
                    let written = volume.write(block * BLOCK, &vec![0; BLOCK_BYTES]);
                    written.map_err(|error| format!("block {block} cannot be written anew: {error}"))?;
                    self.history.lock().acknowledged(owner.id, block, (0, 0))?;
                }
                // Too few copies, and nobody knows whether the block was acknowledged.
                Err(DeviceError::Io { .. }) if volume.status().is_frozen => self.count("reads refused at the end"),
                Err(error) => return Err(format!("at the end block {block} cannot be read: {error}")),
            }
        }
        self.check()
    }

    fn is_tainted(&self, block: u64) -> bool {
        self.servers.iter().any(|server| server.tainted.lock().contains(&block))
    }

    /// The copies are equal, block by block, on the media.
    fn check_media(&self, owner: &Owner, volume: &Volume) -> Result<(), String> {
        volume.checkpoint().map_err(|error| format!("at the end: {error}"))?;
        let scrubbed = volume.scrub().map_err(|error| format!("at the end: {error}"))?;
        let repaired = u64::from(volume.status().copies.iter().map(|copy| copy.repaired).sum::<u64>() > 0);
        let is_damaged = self.servers.iter().any(|server| !server.tainted.lock().is_empty());
        if scrubbed.damaged > 0 || (scrubbed.repaired + repaired > 0 && !is_damaged) {
            return Err(format!("at the end copies differ: {scrubbed:?}"));
        }
        let mut bytes = vec![0; BLOCK_BYTES];
        for block in 0..BLOCKS {
            volume.read(block * BLOCK, &mut bytes).map_err(|error| format!("at the end block {block}: {error}"))?;
            self.note(owner.id, block, &bytes);
            let stored = if self.is_encrypted() { self.servers[0].block(block) } else { bytes.clone() };
            let is_equal = self.servers.iter().all(|server| server.block(block) == stored);
            // A block without content may have any bytes in place.
            if !is_equal && bytes.iter().any(|byte| *byte != 0) {
                return Err(format!("at the end the copies of block {block} differ"));
            }
        }
        if self.is_encrypted() && self.servers.iter().any(|server| server.has_content_in_clear()) {
            return Err("content in clear lies on a medium of an encrypted volume".to_owned());
        }
        self.check()
    }

    /// After a power failure, and without one of the copies, every block is what it was.
    fn check_without(self: &Arc<World>, away: usize) -> Result<(), String> {
        let owner = self.new_owner();
        let here = (0..self.copies as usize).filter(|copy| *copy != away);
        let places = here.map(|copy| owner.links[copy].place()).collect();
        let volume =
            Volume::open(places, self.options(owner.id)).map_err(|error| format!("without {away}: {error}"))?;
        self.opened(&owner, &volume);
        if volume.status().disputed > 0 {
            return Err(format!("without {away}: the copies disagree"));
        }
        self.check_blocks(&owner, &volume)?;
        if (self.copies - 1) < self.min_copies {
            return Ok(());
        }
        // It comes back for the next look.
        let attached = attach(&volume, &owner.links[away], away as u8);
        attached.map_err(|error| format!("copy {away} does not come back: {error}"))?;
        for _ in 0..STEPS {
            if volume.resync_step(away as u8).map_err(|error| format!("copy {away}: {error}"))? == Step::Joined {
                return Ok(());
            }
        }
        Err(format!("copy {away} never joins"))
    }
}
