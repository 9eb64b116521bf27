//! Numeric Rust, again and again: a round of each says a number, which each has to find again.

mod arrays;
mod network;
mod proof;

use std::time::{Duration, Instant};

/// Each case's name, and what prepares it.
const CASES: [Case; 3] =
    [("winterfell", proof::rounds), ("ndarray", arrays::rounds), ("candle", network::rounds)];

type Case = (&'static str, fn() -> Round);
/// What a case does again and again.
type Round = Box<dyn FnMut() -> f64>;

/// `CASE SECONDS`: prints one JSON. The first round does not count.
pub fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [case, seconds, ..] = &arguments[..] else { panic!("give a case, and seconds") };
    let (_, prepare) = CASES.into_iter().find(|(name, _)| name == case).expect("a case's name");
    let mut round = prepare();
    let checksum = round();
    let until = Instant::now() + Duration::from_secs_f64(seconds.parse().expect("seconds"));
    let (before, mut walls) = (spent(), vec![]);
    while walls.is_empty() || Instant::now() < until {
        let began = Instant::now();
        let told = round();
        walls.push(began.elapsed().as_secs_f64());
        assert!((told - checksum).abs() <= 1e-4 * checksum.abs(), "{told}, and {checksum} before");
    }
    let rounds = walls.len() as f64;
    let mut spent = spent();
    spent.iter_mut().zip(before).for_each(|(after, before)| *after = (*after - before) / rounds);
    walls.sort_by(f64::total_cmp);
    let ([cpu, system, faults], ms) = (spent, walls[walls.len() / 2] * 1e3);
    println!(
        r#"{{"case": "{case}", "rounds": {rounds}, "checksum": {checksum}, "ms": {ms}, "cpu_ms": {cpu}, "system_ms": {system}, "faults": {faults}}}"#
    );
}

/// CPU time of all threads, that of the kernel alone, ms, and page faults.
fn spent() -> [f64; 3] {
    // SAFETY: a `rusage` is numbers, of which 0 is one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: it is written to, and outlives the call.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    assert_eq!(failed, 0, "a process may ask what it used");
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    let system = ms(usage.ru_stime);
    [ms(usage.ru_utime) + system, system, usage.ru_minflt as f64]
}
