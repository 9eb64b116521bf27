//! Turns: a drift falls on all alike when each is first in its turn. Variants that are compared go
//! on in turns of their own, when their turns among all others have told too little. Two of them
//! make pairs.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::progress::kept;

/// `turns` turns of `players` players, each of them first in its turn: the turn and the player.
pub fn in_turns(turns: usize, players: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..turns).flat_map(move |turn| (0..players).map(move |place| (turn, (turn + place) % players)))
}

/// The pairs from which on their noise is believed.
pub const PAIRS: usize = 10;

/// Adds one of each of `those` at a time, each of them first in its turn, until all is `known`,
/// `seconds` are over, or the user interrupts; `once` makes one of those that it is asked for.
///
/// # Errors
/// What they say, but for an interruption.
pub fn go_on<T>(
    made: &mut [Vec<T>],
    those: &[usize],
    seconds: u64,
    mut once: impl FnMut(usize) -> Result<T>,
    known: impl Fn(&[Vec<T>]) -> Result<bool>,
) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until && !known(made)? {
        let mut turn = those.to_vec();
        turn.rotate_left(made[those[0]].len() % those.len());
        let mut fresh = vec![];
        for &which in &turn {
            let Some(one) = kept(once(which))? else { return Ok(()) };
            fresh.push(one);
        }
        for (which, one) in turn.into_iter().zip(fresh) {
            made[which].push(one);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Interrupted;

    #[test]
    fn players_are_first_by_turns() {
        let all: Vec<_> = in_turns(2, 3).collect();
        assert_eq!(all, [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (1, 0)]);
    }

    #[test]
    fn each_is_first_in_its_turn_until_all_is_known() {
        let (mut made, mut asked) = (vec![vec![0; 8], vec![], vec![0; 8]], vec![]);
        let once = |which| {
            asked.push(which);
            Ok(asked.len())
        };
        go_on(&mut made, &[0, 2], 60, once, |made| Ok(made[2].len() >= 11)).unwrap();
        assert_eq!(asked, [0, 2, 2, 0, 0, 2]);
        assert_eq!((&made[0][8..], &made[2][8..]), (&[1, 4, 5][..], &[2, 3, 6][..]));
        let (mut made, mut asked) = (vec![vec![0; 6]; 3], vec![]);
        let once = |which| {
            asked.push(which);
            Ok(0)
        };
        go_on(&mut made, &[2, 0, 1], 60, once, |made| Ok(made[1].len() >= 9)).unwrap();
        assert_eq!(asked, [2, 0, 1, 0, 1, 2, 1, 2, 0]);
        let never = |_| -> Result<usize> { unreachable!() };
        go_on(&mut made, &[0, 2], 0, never, |_| Ok(false)).unwrap();
        go_on(&mut made, &[0, 2], 60, never, |_| Ok(true)).unwrap();
    }

    #[test]
    fn an_interrupted_turn_is_left_out_and_another_error_told() {
        let mut made = [vec![1], vec![1]];
        let half = |which| if which == 0 { Ok(2) } else { Err(Interrupted.into()) };
        go_on(&mut made, &[0, 1], 60, half, |_| Ok(false)).unwrap();
        assert_eq!(made, [vec![1], vec![1]]);
        let broken = |_| anyhow::bail!("broken");
        assert!(go_on(&mut made, &[0, 1], 60, broken, |_| Ok(false)).is_err());
    }
}
