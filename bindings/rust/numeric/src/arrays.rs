//! ndarray with rayon: heat in a plate, by steps that each make a new array, and a histogram by threads.

use ndarray::parallel::prelude::*;
use ndarray::{Array1, Array2, Axis, Zip, s};

const SIZE: usize = 2048;
const STEPS: usize = 4;
const BINS: usize = 1 << 18;

fn step(plate: &Array2<f64>) -> Array2<f64> {
    let mut next = Array2::zeros(plate.raw_dim());
    Zip::from(next.slice_mut(s![1..SIZE - 1, 1..SIZE - 1]))
        .and(plate.slice(s![..SIZE - 2, 1..SIZE - 1]))
        .and(plate.slice(s![2.., 1..SIZE - 1]))
        .and(plate.slice(s![1..SIZE - 1, ..SIZE - 2]))
        .and(plate.slice(s![1..SIZE - 1, 2..]))
        .par_for_each(|at, above, below, left, right| *at = (above + below + left + right) / 4.0);
    next
}

fn histogram(plate: &Array2<f64>) -> Array1<u32> {
    let of_rows = plate.axis_chunks_iter(Axis(0), SIZE / 8).into_par_iter().map(|rows| {
        let mut counts = Array1::zeros(BINS);
        rows.for_each(|value| counts[(value * (BINS - 1) as f64) as usize] += 1);
        counts
    });
    of_rows.reduce(|| Array1::zeros(BINS), |all, some| all + some)
}

pub fn rounds() -> super::Round {
    let first = Array2::from_shape_fn((SIZE, SIZE), |(y, x)| ((x * 7 + y * 13) % 97) as f64 / 97.0);
    Box::new(move || {
        let last = (0..STEPS).fold(step(&first), |plate, _| step(&plate));
        let warm = last.mapv(|value| if value > 0.5 { value } else { 0.0 });
        let counts = histogram(&last);
        let common = counts.iter().filter(|&&count| count > 4).count();
        last.sum() + (&warm * &first).sum() + common as f64
    })
}
