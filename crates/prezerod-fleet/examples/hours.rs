use prezerod::demand::{Demand, Target};
use prezerod::stock::Need;
use prezerod_fleet::simulation::{Learnt, Machine, Rule};
use prezerod_fleet::{Arrivals, Named, PATTERNS, RULES, Setting, play};
#[derive(Debug)]
struct Blind(Learnt);
impl Rule for Blind {
    fn asked(&mut self, now: u64, need: &Need, pace: u64) { self.0.asked(now, need, pace) }
    fn turn(&mut self, now: u64, _: u16) { self.0.turn(now, 0) }
    fn next_turn(&self, now: u64) -> u64 { self.0.next_turn(now) }
    fn targets(&self, limit: u64) -> Vec<Target> { self.0.targets(limit) }
}
fn main() {
    let blind = Named { name: "no hours", new: |s, _| Box::new(Blind(Learnt(Demand::new(0, s.forget.as_nanos() as u64)))) };
    let setting = Setting { machine: Machine { pace: 8 << 30, limit: 64 << 30 }, forget: std::time::Duration::from_secs(4500), keep: 0 };
    for pattern in &PATTERNS {
        let arrivals = Arrivals::of_pattern(pattern, 30, 14);
        for rule in [&RULES[0], &blind] {
            let t = play(&arrivals, rule, &setting, || false);
            println!("{} {}: hits {:.2} % p99 {} ms ready {:.1} GiBh vain {}", pattern.name, rule.name, 100.0 * t.hits as f64 / t.requests() as f64, t.wait_ns(0.99) / 1_000_000, t.ready / t.length_ns * 24.0 / (1u64 << 30) as f64, t.vain >> 30);
        }
    }
}
