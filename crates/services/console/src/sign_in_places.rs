//! [`SignInPlaces`]: places of sign-ins, which wait for others: for a password's turn, for a directory, for guesses at other ports.
//!
//! ```text
//!   POST /sign-in --place: of all 64, of one address 32--> checked --> the place is free      no turn of the requests of those who are in
//! ```
//!
//! Nobody waits for a place. Of an IPv6 address the first 64 bits count: one host may have all the rest.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;

/// Sign-ins at a time.
const ALL: usize = 64;

/// Of one address: half, as of connections. Many people may be behind one.
const OF_ADDRESS: usize = 32;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct SignInPlaces {
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// A place that is taken, until it is dropped.
#[derive(Debug)]
pub(crate) struct SignInPlace<'a> {
    places: &'a SignInPlaces,
    network: IpAddr,
}

fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

impl SignInPlaces {
    /// Takes a place; `None`: there is none for this address.
    pub(crate) fn take(&self, address: IpAddr) -> Option<SignInPlace<'_>> {
        let network = network_of(address);
        let mut taken = self.taken.lock();
        let own = taken.get(&network).copied().unwrap_or(0);
        if own >= OF_ADDRESS || taken.values().sum::<usize>() >= ALL {
            return None;
        }
        taken.insert(network, own + 1);
        Some(SignInPlace { places: self, network })
    }
}

impl Drop for SignInPlace<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        if let Some(own) = taken.get_mut(&self.network) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_half_of_the_places_to_others_and_a_place_that_is_dropped_is_free() {
        let (places, address) = (SignInPlaces::default(), |text: &str| text.parse::<IpAddr>().expect("an address"));
        // Of one network, however many addresses it has.
        let take = |number: usize| places.take(address(&format!("2001:db8::{number:x}")));
        let mut own: Vec<_> = (0..OF_ADDRESS).filter_map(take).collect();
        assert!(own.len() == OF_ADDRESS && take(7).is_none());
        let others: Vec<_> = (0..ALL).filter_map(|number| places.take(address(&format!("10.0.0.{number}")))).collect();
        assert_eq!(others.len(), ALL - OF_ADDRESS);
        assert!(own.pop().is_some() && take(7).is_some());
        drop((own, others));
        assert!(places.taken.lock().is_empty(), "what nobody has is not remembered");
    }
}
