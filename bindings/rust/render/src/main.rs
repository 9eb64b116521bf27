//! Renders an SVG image again and again, as a server of tiles or previews does.
//!
//!     cargo run --release                  with prezero
//!     PREZERO_DISABLE=1 cargo run --release    with the system's allocator
//!
//! A frame of resvg's is a zeroed vector, here of 33 MB, and each layer of the image is another. Between frames the
//! program waits for the next request.

use std::time::{Duration, Instant};

use prezero::Global;
use resvg::{tiny_skia, usvg};

#[global_allocator]
static ALLOCATOR: Global = Global::system();

const SIZE: (u32, u32) = (3840, 2160);
const FRAMES: usize = 40;
const WAIT: Duration = Duration::from_millis(20);

/// A map with some features, and a layer with an opacity of its own.
const IMAGE: &str = r##"
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 3840 2160">
  <path d="M200 300 C900 100 1500 900 3600 400" stroke="#346" stroke-width="9" fill="none"/>
  <circle cx="900" cy="1100" r="160" fill="#8a5"/>
  <g opacity="0.6"><rect x="2000" y="900" width="500" height="300" fill="#c63"/></g>
</svg>"##;

fn main() {
    let tree = usvg::Tree::from_str(IMAGE, &usvg::Options::default()).expect("the image is one");
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
    let who = if ALLOCATOR.snapshot().is_some() { "prezero" } else { "the system's allocator" };
    println!("{who}: {:.2} ms a frame (median of {FRAMES}), check {sum}", times[FRAMES / 2].as_secs_f64() * 1e3);
}
