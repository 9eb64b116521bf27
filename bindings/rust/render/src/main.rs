//! Renders SVG images again and again, as a server of tiles or previews does.
//!
//!     cargo run --release
//!
//! Each frame of resvg is a zeroed vector, here of 33 MB, and each layer of an image is another. Between frames the
//! program waits for its next request. It starts itself for each measurement: with prezero, and with
//! `PREZERO_DISABLE=1`, which leaves all to the system's allocator.

use std::process::Command;
use std::time::{Duration, Instant};

use prezero::Global;
use resvg::{tiny_skia, usvg};

#[global_allocator]
static ALLOCATOR: Global = Global::system();

const SIZE: (u32, u32) = (3840, 2160);
const FRAMES: usize = 40;
const WAIT: Duration = Duration::from_millis(20);
/// Processes for each image and allocator.
const TURNS: usize = 5;

/// An overlay leaves most of its frame as it is; a page has a background.
const IMAGES: [(&str, &str); 2] = [
    (
        "overlay",
        r##"
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 3840 2160">
  <path d="M200 300 C900 100 1500 900 3600 400" stroke="#346" stroke-width="9" fill="none"/>
  <circle cx="900" cy="1100" r="160" fill="#8a5"/>
  <g opacity="0.6"><rect x="2000" y="900" width="500" height="300" fill="#c63"/></g>
</svg>"##,
    ),
    (
        "page",
        r##"
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 3840 2160">
  <rect width="3840" height="2160" fill="#fed"/>
  <path d="M200 300 C900 100 1500 900 3600 400" stroke="#346" stroke-width="9" fill="none"/>
  <g opacity="0.6"><rect x="400" y="300" width="3000" height="1500" fill="#c63"/></g>
</svg>"##,
    ),
];

/// Milliseconds of the median frame, and a sum over its bytes.
fn render(image: &str) -> (f64, u64) {
    let tree = usvg::Tree::from_str(image, &usvg::Options::default()).expect("the image is one");
    let mut times: Vec<Duration> = vec![];
    let mut sum = 0u64;
    for _ in 0..FRAMES {
        std::thread::sleep(WAIT);
        let began = Instant::now();
        let mut frame = tiny_skia::Pixmap::new(SIZE.0, SIZE.1).expect("a size above 0");
        resvg::render(&tree, tiny_skia::Transform::identity(), &mut frame.as_mut());
        sum = frame.data().iter().step_by(997).map(|&byte| u64::from(byte)).sum();
        drop(frame);
        times.push(began.elapsed());
    }
    times.sort();
    (times[FRAMES / 2].as_secs_f64() * 1e3, sum)
}

/// What a process of its own says of this image.
fn measured(name: &str, disabled: &str) -> (f64, u64) {
    let program = std::env::current_exe().expect("a program has a path");
    let output = Command::new(program)
        .arg(name)
        .env("PREZERO_DISABLE", disabled)
        .output()
        .expect("it starts itself");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    let mut words = said.split_whitespace();
    let mut word = || words.next().expect("three words");
    let allocator = word();
    assert_eq!(allocator, if disabled == "1" { "system" } else { "prezero" });
    (word().parse().expect("a time"), word().parse().expect("a sum"))
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() {
    if let Some(name) = std::env::args().nth(1) {
        let (_, image) =
            IMAGES.into_iter().find(|(known, _)| *known == name).expect("overlay or page");
        let (ms, sum) = render(image);
        let allocator = if ALLOCATOR.snapshot().is_some() { "prezero" } else { "system" };
        println!("{allocator} {ms} {sum}");
        return;
    }
    println!("ms a frame, medians     system   prezero   times");
    for (name, _) in IMAGES {
        let (mut system, mut prezero) = (vec![], vec![]);
        for _ in 0..TURNS {
            let (theirs, drawn) = measured(name, "1");
            let (ours, same) = measured(name, "0");
            assert_eq!(drawn, same, "{name}: prezero's frames differ");
            system.push(theirs);
            prezero.push(ours);
        }
        let (system, prezero) = (median(system), median(prezero));
        println!("{name:<20} {system:>9.2} {prezero:>9.2} {:>7.2}", system / prezero);
    }
}
