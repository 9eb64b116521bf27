//! Rounds of `vec![0u8; 16 << 20]`: with the system's allocator, and with prezero's.
//!
//!     cargo run --release -p prezero --example rounds
//!
//! Each round makes a vector, writes to each of its pages, and drops it; then the program waits, as one does that is fed
//! by a socket or a person. The same program runs twice: `PREZERO_DISABLE=1` leaves all to the system's allocator.
//! `prezero bench doors` asks for the samples.

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

/// Microseconds of each round.
fn measure(pause: Duration) -> Vec<f64> {
    let rounds = (0..ROUNDS).map(|_| {
        std::thread::sleep(pause);
        round().as_secs_f64() * 1e6
    });
    rounds.collect()
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let program = std::env::current_exe().expect("a program has a path");
            for disabled in ["1", "0"] {
                let mut child = Command::new(&program);
                child.arg("alone").env("PREZERO_DISABLE", disabled);
                child.status().expect("it starts itself");
            }
        }
        ["samples", pause_ms] => {
            let pause = Duration::from_secs_f64(pause_ms.parse::<f64>().expect("ms") / 1e3);
            println!("{:?}", measure(pause));
        }
        _ => {
            let mut rounds = measure(PAUSE);
            rounds.sort_by(f64::total_cmp);
            let who = if ALLOCATOR.snapshot().is_some() { "prezero" } else { "the system's" };
            println!("{who:<14} {:6.2} ms a round", rounds[ROUNDS / 2] / 1e3);
        }
    }
}
