//! Changes of the volumes of a host: made, replaced copies, grown, limited, exported, given up, deleted.
//!
//! Each holds the volume's operation. The description is durable before anything is made at a place, and goes last.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use volume::{NewVolume, Place, Volume};

use super::description::{CopyDescription, Description, ExportDescription, MadeState, VolumeKind, check_name};
use super::disks;
use super::host::{VolumeHost, is_exported_already, limits_of};
use super::hosted::{HostedVolume, OpenDevice, make_place};
use super::keys::EncryptionDescription;
use super::places::{self, NewCopy};
use super::requests::{MadeReport, NewVolumeRequest, WantedCopy};

/// Sizes of volumes and places: whole regions of a dirty map, as many as the format has room for.
const SIZE_STEP: u64 = 64 << 10;
const SIZE_MAX: u64 = 1 << 50;

impl VolumeHost {
    pub(super) fn create(&self, new: &NewVolumeRequest) -> anyhow::Result<Value> {
        let NewVolumeRequest { name, kind, bytes, .. } = new;
        check_name(name)?;
        // Before anything is made, here or on another node.
        ensure!(
            *bytes > 0 && bytes.is_multiple_of(SIZE_STEP) && *bytes <= SIZE_MAX,
            "the size is a positive multiple of 64 KiB, at most 1 PiB"
        );
        let is_place = *kind == VolumeKind::Place;
        ensure!(!is_place || new.copies.len() == 1, "a place for a copy lies on one tier");
        ensure!(!is_place || !new.thin, "a place is reserved: what lies on it is another node's volume");
        let copies = places::choose(&self.tiers, name, &new.copies, new.share_tiers)?;
        if new.thin {
            copies.iter().try_for_each(|copy| places::check_thin(&self.tiers, copy))?;
        }
        let min_copies = new.min_copies.unwrap_or(if copies.len() == 3 { 2 } else { 1 });
        ensure!(
            new.prefer.is_none_or(|prefer| usize::from(prefer) < copies.len()),
            "the preferred copy is a number from 0 to {}",
            copies.len() - 1
        );
        ensure!(
            new.iops != Some(0) && new.bytes_per_second != Some(0),
            "a limit of 0 would stop the volume: leave it out"
        );
        ensure!(
            !is_place || new.key_file.is_none(),
            "a place gets ciphertext from the owner of its copy: encrypt the volume there"
        );
        let description = Description {
            encryption: new.key_file.as_deref().map(EncryptionDescription::new).transpose()?,
            thin: new.thin,
            prefer: new.prefer,
            iops: new.iops,
            bytes_per_second: new.bytes_per_second,
            upkeep_bytes_per_second: new.upkeep_bytes_per_second,
            ..Description::new(name, *kind, *bytes, min_copies, copies)
        };
        let volume = Arc::new(HostedVolume::new(description.clone(), self.scrub, &self.profile));
        let _one = volume.operation()?;
        {
            let mut volumes = self.volumes.lock();
            let exists = volumes.contains_key(name) || self.descriptions.has(name);
            ensure!(!exists, "there is a volume {name} already");
            self.descriptions.write(&description)?;
            volumes.insert(name.clone(), Arc::clone(&volume));
        }
        let made = self.make(&volume, &description).inspect_err(|_| {
            // The first error is the one to report; what is left is shown as unfinished, and can be deleted.
            let _ = self.clear(&volume);
        });
        made.with_context(|| format!("volume {name} was not made"))?;
        let ready = Description { state: MadeState::Ready, ..description };
        self.descriptions.write(&ready)?;
        volume.describe(ready);
        if self.is_serving() {
            volume.open(&self.tiers, false)?;
        }
        let disks: Vec<_> = volume.description().copies.iter().map(places::disks_of).collect();
        let same_disk = if new.share_tiers { Vec::new() } else { disks::shared(&disks) };
        Ok(serde_json::to_value(MadeReport { same_disk })?)
    }

    fn make(&self, volume: &HostedVolume, description: &Description) -> anyhow::Result<()> {
        if description.kind == VolumeKind::Place {
            return make_place(&self.tiers, description);
        }
        let copies = &description.copies;
        copies.iter().try_for_each(|copy| places::check_new(&self.tiers, copy, description.bytes))?;
        let new_copy = NewCopy { bytes: description.bytes, term: 1 };
        let places = self.places(description, Some(new_copy))?;
        let new = NewVolume {
            volume: description.identity()?,
            bytes: description.bytes,
            min_copies: Some(description.min_copies),
            is_thin: description.thin,
        };
        Ok(Volume::create(&places, &new, &volume.options(description, false)?)?)
    }

    fn places(&self, description: &Description, new: Option<NewCopy>) -> anyhow::Result<Vec<Place>> {
        description.copies.iter().map(|copy| Ok(places::open(&self.tiers, copy, new)?.place)).collect()
    }

    pub(super) fn replace(&self, name: &str, copy: u8, wanted: Option<WantedCopy>) -> anyhow::Result<Value> {
        let volume = self.find(name)?;
        let _one = volume.operation()?;
        ensure!(
            self.is_serving(),
            "a copy is replaced while the volume is served: `terrace serve`, or `terrace volume export {name}`"
        );
        let mirror = volume.mirror()?;
        let description = volume.description();
        let number = usize::from(copy);
        let old = description.copies.get(number);
        let old = old.with_context(|| format!("volume {name} has the copies 0 to {}", description.copies.len() - 1))?;
        let wanted = wanted.map_or_else(|| places::wanted_again(old), Ok)?;
        let new = places::choose_one(&self.tiers, name, copy, &wanted)?;
        if description.thin {
            places::check_thin(&self.tiers, &new)?;
        }
        ensure!(
            !mirror.status().is_frozen,
            "fewer copies of volume {name} work than it needs, so none can be made anew: bring one back; or give up what only the missing \
             ones contain: `terrace volume accept-loss {name}`"
        );
        let is_used =
            mirror.status().copies.get(number).is_some_and(|copy| {
                matches!(copy.state, volume::CopyState::InSync | volume::CopyState::Syncing { .. })
            });
        if is_used {
            let left = mirror.status().in_sync.without(copy).count();
            ensure!(
                left >= description.min_copies.max(1),
                "without copy {copy}, {left} copies of volume {name} would be in sync, and it needs {}: writes would wait",
                description.min_copies.max(1)
            );
            mirror.exclude(copy)?;
        }
        // Durable before anything is made there; until the new copy works, the former place counts as not yet cleared.
        let mut changed = description.clone();
        changed.retired.push(old.clone());
        changed.copies[number] = new.clone();
        self.descriptions.write(&changed)?;
        volume.describe(changed);
        if let Err(error) = volume.replace(&self.tiers, copy, &new) {
            self.descriptions.write(&description)?;
            volume.describe(description);
            // What was made there is of no use; if it cannot be removed either, the first error is the one to report.
            let _ = places::clear(&self.tiers, &new);
            return Err(error);
        }
        Ok(json!(new.place.text()))
    }

    pub(super) fn grow(&self, name: &str, bytes: u64) -> anyhow::Result<Value> {
        let volume = self.find(name)?;
        let _one = volume.operation()?;
        let description = volume.description();
        ensure!(
            description.kind == VolumeKind::Mirror,
            "{name} is a place for a copy of another node's volume, which does not grow"
        );
        ensure!(
            !self.is_serving() || description.exported.is_none(),
            "volume {name} is exported, and grows while nobody uses it: `terrace volume export {name} --stop` first"
        );
        self.check_free(name)?;
        let options = volume.options(&description, false)?;
        let was_open = volume.opened().is_some();
        volume.close()?;
        let places = self.places(&description, None)?;
        let grown = Volume::grow(&places, bytes, &options);
        drop(places);
        if grown.is_ok() {
            let changed = Description { bytes, ..description };
            self.descriptions.write(&changed)?;
            volume.describe(changed);
        }
        if was_open {
            volume.open(&self.tiers, false)?;
        }
        grown?;
        Ok(Value::Null)
    }

    /// Changes the limits of its clients: `None` leaves one as it is, 0 takes it away.
    pub(super) fn rekey(&self, name: &str, key_file: &Path, new_data_key: bool) -> anyhow::Result<Value> {
        let volume = self.find(name)?;
        let _one = volume.operation()?;
        let description = volume.description();
        let encryption = description.encryption.as_ref();
        let encryption = encryption.with_context(|| format!("volume {name} is not encrypted"))?;
        let encryption = Some(encryption.rekeyed(key_file, new_data_key)?);
        let description = Description { encryption, ..description };
        self.descriptions.write(&description)?;
        volume.describe(description);
        Ok(Value::Null)
    }

    pub(super) fn limit(&self, name: &str, iops: Option<u64>, bytes_per_second: Option<u64>) -> anyhow::Result<Value> {
        let volume = self.find(name)?;
        let _one = volume.operation()?;
        let description = volume.description();
        ensure!(description.state == MadeState::Ready, "volume {name} was not made completely: delete it");
        let changed = |wanted: Option<u64>, now| match wanted {
            None => now,
            Some(0) => None,
            Some(limit) => Some(limit),
        };
        let description = Description {
            iops: changed(iops, description.iops),
            bytes_per_second: changed(bytes_per_second, description.bytes_per_second),
            ..description
        };
        self.descriptions.write(&description)?;
        volume.describe(description.clone());
        if let Some(exports) = self.exports() {
            match exports.server.limit(name, limits_of(&description)) {
                // It is exported later, with these.
                Ok(()) | Err(nbd::NbdError::NoExport { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let reports = self.status(&[name.to_owned()])?;
        Ok(serde_json::to_value(&reports[0])?)
    }

    pub(super) fn set_export(&self, name: &str, exported: Option<ExportDescription>) -> anyhow::Result<Value> {
        let volume = self.find(name)?;
        let _one = volume.operation()?;
        let description = volume.description();
        ensure!(description.state == MadeState::Ready, "volume {name} was not made completely: delete it");
        if exported.is_some() {
            self.check_free(name)?;
        }
        let changed = Description { exported, ..description.clone() };
        if description.exported != exported {
            self.descriptions.write(&changed)?;
            volume.describe(changed.clone());
            self.unexport(name)?;
        }
        if let (Some(open), true) = (volume.opened(), exported.is_some()) {
            match self.export(&changed, &open) {
                Err(error) if is_exported_already(&error) => {}
                exported => exported?,
            }
        }
        let reports = self.status(&[name.to_owned()])?;
        Ok(serde_json::to_value(&reports[0])?)
    }

    pub(super) fn accept_loss(&self, name: &str) -> anyhow::Result<Value> {
        let volume = self.find(name)?;
        let _one = volume.operation()?;
        if !self.is_serving() {
            // As it is without a loss; where that serves writes, nothing has to be given up.
            let _ = volume.open(&self.tiers, false);
        }
        let is_frozen = matches!(volume.opened(), Some(OpenDevice::Mirror(mirror)) if mirror.status().is_frozen);
        let is_needed = is_frozen || volume.opened().is_none();
        let opened = if is_needed { self.open_anew(&volume, true) } else { Ok(()) };
        if !self.is_serving() {
            volume.close()?;
        }
        opened?;
        ensure!(is_needed, "volume {name} serves writes: nothing has to be given up");
        Ok(Value::Null)
    }

    pub(super) fn delete(&self, name: &str) -> anyhow::Result<Value> {
        let volume = self.find(name)?;
        let _one = volume.operation()?;
        self.check_free(name)?;
        let description = Description { exported: None, state: MadeState::Deleting, ..volume.description() };
        self.descriptions.write(&description)?;
        volume.describe(description);
        self.unexport(name)?;
        // What it would write in place is removed next.
        let _ = volume.close();
        self.clear(&volume)?;
        Ok(Value::Null)
    }

    /// Clears the former places of replaced copies, once all copies are in sync: until then they may be the last ones.
    pub(super) fn clear_retired(&self, volume: &HostedVolume) -> anyhow::Result<()> {
        let description = volume.description();
        if description.retired.is_empty() || !volume.is_in_sync() {
            return Ok(());
        }
        description.retired.iter().try_for_each(|copy| self.clear_copy(&description, copy))?;
        let changed = Description { retired: Vec::new(), ..description };
        self.descriptions.write(&changed)?;
        volume.describe(changed);
        Ok(())
    }

    /// Removes what lies at a place: the superblock first, so that what a crash leaves behind is no copy; then the folder.
    fn clear_copy(&self, description: &Description, copy: &CopyDescription) -> anyhow::Result<()> {
        match description.kind {
            VolumeKind::Mirror => places::clear(&self.tiers, copy),
            VolumeKind::Place => places::remove_folders(copy),
        }
    }

    /// Removes everything of a volume, its description last.
    fn clear(&self, volume: &HostedVolume) -> anyhow::Result<()> {
        let description = volume.description();
        let copies = description.copies.iter().chain(&description.retired);
        copies.into_iter().try_for_each(|copy| self.clear_copy(&description, copy))?;
        self.descriptions.remove(&description.name)?;
        self.volumes.lock().remove(&description.name);
        Ok(())
    }
}
