//! Checks that everything fits: the bytes of a tier among the structures on it, and far memory behind near memory.
//!
//! ```text
//! a Dual tier of 128 GiB:  |<- journal: its limit + segments ->|<- write image journal ->|<------ far memory: the rest ------>|
//! ```
//!
//! Missing sizes are not guessed: a tier without `bytes` is not checked, unless the mode depends on its size.

use std::collections::BTreeMap;

use super::error::Tenths;
use super::tier::{Tier, Tiers};
use super::{Mode, Needs, PlacementError, RATIO_LIMIT, RATIO_LIMIT_MAX, Seat, Settings, Size, Structure};

type Seats = BTreeMap<Structure, Seat>;

/// Sets the sizes of the seats and checks them.
pub(super) fn check(
    settings: &Settings,
    needs: &Needs,
    tiers: &Tiers,
    seats: &mut Seats,
) -> Result<(), PlacementError> {
    let placement = &settings.placement;
    for (structure, size) in [
        (Structure::Cache, placement.cache_bytes),
        (Structure::Far, placement.far_bytes),
        (Structure::WriteImageJournal, placement.write_image_journal_bytes),
    ] {
        if size == Some(Size(0)) {
            return Err(PlacementError::Empty { key: format!("placement.{}_bytes", structure.key()) });
        }
        match seats.get_mut(&structure) {
            Some(seat) => seat.bytes = size.map(|size| size.0),
            None if size.is_some() => return Err(PlacementError::SizeOfNothing { structure, key: structure.key() }),
            None => {}
        }
    }
    if let Some(seat) = seats.get_mut(&Structure::Journal) {
        seat.bytes = Some(needs.journal_bytes);
    }
    for tier in tiers.iter() {
        check_tier(tier, seats)?;
    }
    check_ratio(settings, seats)
}

/// Checks that the requested sizes fit; a structure without a size (cache, far memory) gets the rest.
fn check_tier(tier: &Tier, seats: &mut Seats) -> Result<(), PlacementError> {
    let here: Vec<Structure> = seats.values().filter(|seat| seat.tier == tier.name).map(|s| s.structure).collect();
    let far_in_split = here.contains(&Structure::Far) && here.len() > 1;
    let Some(bytes) = tier.bytes else {
        if far_in_split {
            let why = "far memory shares it with what else lies there, and the split is checked";
            return Err(PlacementError::MissingBytes { tier: tier.name.clone(), why });
        }
        return Ok(());
    };
    let given: u64 = here.iter().filter_map(|s| seats[s].bytes).fold(0, u64::saturating_add);
    let open = here.iter().find(|s| matches!(s, Structure::Cache | Structure::Far) && seats[s].bytes.is_none());
    // A structure without a size does not fit if nothing is left for it.
    if given > bytes || (open.is_some() && given == bytes) {
        let want = |s: &Structure| match seats[s].bytes {
            Some(bytes) => format!("{s} {}", Size(bytes)),
            None => format!("{s} (the rest)"),
        };
        let lower = |s: &Structure| match s {
            Structure::Journal => "journal.limit".to_owned(),
            other => format!("placement.{}_bytes", other.key()),
        };
        let sized = here.iter().filter(|s| seats[*s].bytes.is_some());
        return Err(PlacementError::DoesNotFit {
            tier: tier.name.clone(),
            bytes: Size(bytes),
            wants: here
                .iter()
                .filter(|s| seats[*s].bytes.is_some() || Some(*s) == open)
                .map(want)
                .collect::<Vec<_>>()
                .join(" and "),
            lower: sized.map(lower).collect::<Vec<_>>().join(" or "),
        });
    }
    if let Some(open) = open.copied()
        && let Some(seat) = seats.get_mut(&open)
    {
        seat.bytes = Some(bytes - given);
    }
    Ok(())
}

/// Checks that near memory is large enough for the far memory behind it, and not larger.
fn check_ratio(settings: &Settings, seats: &Seats) -> Result<(), PlacementError> {
    let limit = settings.placement.ratio_limit.unwrap_or(RATIO_LIMIT);
    if !(1..=RATIO_LIMIT_MAX).contains(&limit) {
        return Err(PlacementError::RatioLimit(limit));
    }
    let Some((near, far)) = seats.get(&Structure::Cache).zip(seats.get(&Structure::Far)) else { return Ok(()) };
    let size = |seat: &Seat| {
        let why = "the near:far ratio is checked, and needs the size of both";
        seat.bytes.ok_or_else(|| PlacementError::MissingBytes { tier: seat.tier.clone(), why })
    };
    let (near, far) = (size(near)?, size(far)?);
    // Far memory that a key places adds to the cache; in a mode, far memory includes the content of near memory.
    let holds_both = matches!(settings.mode, Some(Mode::Memory | Mode::Dual));
    if holds_both && near > far {
        return Err(PlacementError::NearLargerThanFar { near: Size(near), far: Size(far) });
    }
    if u128::from(far) > u128::from(near) * u128::from(limit) {
        let tenths = (u128::from(far) * 10).div_ceil(u128::from(near.max(1)));
        return Err(PlacementError::Ratio {
            far: Size(far),
            near: Size(near),
            ratio: Tenths(u64::try_from(tenths).unwrap_or(u64::MAX)),
            limit,
            near_needed: Size(far.div_ceil(u64::from(limit))),
            far_allowed: Size(near.saturating_mul(u64::from(limit))),
        });
    }
    Ok(())
}
