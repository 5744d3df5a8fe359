//! Inputs: number `n` is a member of the pool, changed a few times, or plain random bytes.
//!
//! The changes are those that find mistakes in parsers of delimited text: cut, double, swap and overwrite spans, insert
//! the format's own words where they do not belong, make numbers extreme, cross two inputs.

use crate::pool::{INPUT_BYTES_MAX, Pool};
use fastrand::Rng;

/// One input in this many is plain random bytes.
const RANDOM_ONE_IN: u32 = 32;

/// Numbers at the edges of the widths parsers count in.
const EXTREMES: &[&str] =
    &["0", "-1", "255", "256", "65535", "65536", "4294967295", "4294967296", "18446744073709551616"];

/// Makes inputs.
pub struct Mutator<'p> {
    pool: &'p Pool,
    seed: u64,
}

impl<'p> Mutator<'p> {
    /// A mutator over `pool`; the same seed makes the same inputs.
    pub fn new(pool: &'p Pool, seed: u64) -> Self {
        Mutator { pool, seed }
    }

    /// Input `number`. The first ones are the members of the pool as they are.
    pub fn input(&self, number: u64) -> Vec<u8> {
        if let Some(member) = usize::try_from(number).ok().and_then(|number| self.pool.members.get(number)) {
            return member.clone();
        }
        // fastrand seeds by simple mixing: an odd multiplier keeps neighbouring numbers apart.
        let mut rng = Rng::with_seed(self.seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        if self.pool.members.is_empty() || rng.u32(..RANDOM_ONE_IN) == 0 {
            let length = rng.usize(..512);
            return (0..length).map(|_| rng.u8(..)).collect();
        }
        let mut input = self.pool.members[rng.usize(..self.pool.members.len())].clone();
        // Mostly few changes, sometimes many: 1 to 64, each doubling half as likely as the one before.
        let changes = 1 << rng.u32(..=6).min(rng.u32(..=6)).min(rng.u32(..=6));
        for _ in 0..changes {
            self.change(&mut input, &mut rng);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn change(&self, input: &mut Vec<u8>, rng: &mut Rng) {
        let at = rng.usize(..=input.len());
        match rng.u32(..11) {
            0 => flip(input, at, rng),
            1 => insert(input, at, &[rng.u8(..)]),
            2 => insert(input, at, self.pool.word(rng)),
            3 => overwrite(input, at, self.pool.word(rng)),
            4 => drop(input.drain(span(input.len(), at, rng))),
            5 => {
                let copy = input[span(input.len(), at, rng)].to_vec();
                let to = rng.usize(..=input.len());
                insert(input, to, &copy);
            }
            6 => {
                let copy = input[span(input.len(), at, rng)].to_vec();
                let to = rng.usize(..=input.len());
                overwrite(input, to, &copy);
            }
            7 => input.truncate(at),
            8 => extreme_number(input, at, rng),
            9 => repeat(input, at, rng),
            _ => {
                let other = &self.pool.members[rng.usize(..self.pool.members.len())];
                let from = rng.usize(..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
}

/// A span that starts at `at`, mostly short.
fn span(len: usize, at: usize, rng: &mut Rng) -> std::ops::Range<usize> {
    let longest = if rng.u32(..4) == 0 { len - at } else { (len - at).min(16) };
    at..at + rng.usize(..=longest)
}

fn flip(input: &mut [u8], at: usize, rng: &mut Rng) {
    if let Some(byte) = input.get_mut(at) {
        *byte ^= 1 << rng.u32(..8);
    }
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if input.len() + bytes.len() <= INPUT_BYTES_MAX {
        input.splice(at..at, bytes.iter().copied());
    }
}

fn overwrite(input: &mut [u8], at: usize, bytes: &[u8]) {
    let length = bytes.len().min(input.len() - at);
    input[at..at + length].copy_from_slice(&bytes[..length]);
}

/// Puts an extreme number in the place of the first digits at or after `at`.
fn extreme_number(input: &mut Vec<u8>, at: usize, rng: &mut Rng) {
    let Some(start) = input[at..].iter().position(u8::is_ascii_digit).map(|offset| at + offset) else { return };
    let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = EXTREMES[rng.usize(..EXTREMES.len())].bytes();
    input.splice(start..start + length, number);
}

/// Repeats the byte at `at` many times: nesting and runs are where recursion and quadratic loops hide.
fn repeat(input: &mut Vec<u8>, at: usize, rng: &mut Rng) {
    if let Some(&byte) = input.get(at) {
        insert(input, at, &vec![byte; 1 << rng.u32(..13)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        Pool { members: vec![b"MSH|^~\\&|A|1\r".to_vec(), b"PID|2".to_vec()], words: vec![b"|".to_vec()] }
    }

    #[test]
    fn the_same_seed_makes_the_same_inputs_and_another_seed_others() {
        let pool = pool();
        let inputs = |seed| (0..500).map(|number| Mutator::new(&pool, seed).input(number)).collect::<Vec<_>>();
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1)[2..], inputs(2)[2..]);
    }

    #[test]
    fn the_pool_itself_comes_first() {
        let pool = pool();
        let mutator = Mutator::new(&pool, 7);
        assert_eq!((mutator.input(0), mutator.input(1)), (pool.members[0].clone(), pool.members[1].clone()));
    }

    #[test]
    fn inputs_differ_and_stay_below_the_limit_even_from_an_empty_pool() {
        for pool in [pool(), Pool { members: Vec::new(), words: Vec::new() }] {
            let mutator = Mutator::new(&pool, 3);
            let inputs: std::collections::BTreeSet<_> = (0..1000).map(|number| mutator.input(number)).collect();
            assert!(inputs.len() > 700, "only {} of 1000 inputs differ", inputs.len());
            assert!(inputs.iter().all(|input| input.len() <= INPUT_BYTES_MAX));
        }
    }
}
