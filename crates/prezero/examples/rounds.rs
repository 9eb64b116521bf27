//! Rounds of `vec![0u8; 16 << 20]`: with the system's allocator, and with prezero's.
//!
//!     cargo run --release -p prezero --example rounds
//!
//! Each round makes a vector, writes to each of its pages, and drops it; then the program waits, as one does that is fed
//! by a socket or a person. The same program runs twice: `PREZERO_DISABLE=1` leaves all to the system's allocator.

#![allow(clippy::print_stdout, reason = "the figures are what it is for")]

use std::process::Command;
use std::time::{Duration, Instant};

use prezero::Global;

#[global_allocator]
static ALLOCATOR: Global = Global::system();

const BYTES: usize = 16 << 20;
const ROUNDS: usize = 200;
const PAUSE: Duration = Duration::from_millis(3);

fn round() -> Duration {
    let began = Instant::now();
    let mut image = vec![0u8; BYTES];
    for page in image.chunks_mut(4096) {
        page[0] = 1;
    }
    drop(image);
    began.elapsed()
}

fn main() {
    if std::env::args().nth(1).is_none() {
        let program = std::env::current_exe().expect("a program has a path");
        for disabled in ["1", "0"] {
            let mut child = Command::new(&program);
            child.arg("alone").env("PREZERO_DISABLE", disabled);
            child.status().expect("it starts itself");
        }
        return;
    }
    let mut rounds: Vec<_> = (0..ROUNDS)
        .map(|_| {
            std::thread::sleep(PAUSE);
            round()
        })
        .collect();
    rounds.sort();
    let who = if ALLOCATOR.snapshot().is_some() { "prezero" } else { "the system's" };
    let median = rounds[ROUNDS / 2].as_secs_f64() * 1e3;
    println!("{who:<14} {median:6.2} ms a round");
}
