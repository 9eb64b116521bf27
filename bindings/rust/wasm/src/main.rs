//! Instances of wasmtime, with their memories reset in each way that there is: wasmtime's own, and `prezero::Pool`.
//!
//!     cargo run --release [ROUNDS] [MS]
//!
//! An instance is made, writes whole pages, and is dropped. Each way runs for MS in each of ROUNDS rounds, and a figure is the
//! median of the rounds: instances a second, the 99th percentile of an instance's time, and the CPU time of the whole
//! process per instance. One, two and sixteen threads make instances without a pause; one more waits a millisecond
//! after each.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, InstancePre, Linker, Module,
    PoolingAllocationConfig, Store,
};

mod memory;

use memory::Slots;

/// Bytes of a page of Wasm.
const UNIT: usize = 1 << 16;
/// Bytes of the module's own data, at the beginning of its memory.
const DATA: usize = 32 << 10;

/// A module: bytes of its memory, and those that an instance writes, from the data on.
struct Kind {
    name: &'static str,
    bytes: usize,
    written: usize,
}

const KINDS: [Kind; 3] = [
    Kind { name: "small: 1 MiB, 64 KiB written", bytes: 1 << 20, written: 64 << 10 },
    Kind { name: "medium: 16 MiB, 1 MiB written", bytes: 16 << 20, written: 1 << 20 },
    Kind { name: "large: 256 MiB, 8 MiB written", bytes: 256 << 20, written: 8 << 20 },
];

impl Kind {
    /// The module as text. `run` writes all that an instance writes.
    fn text(&self) -> String {
        let (units, data) = (self.bytes / UNIT, "prezero.".repeat(DATA / 8));
        format!(
            "(module (memory (export \"memory\") {units} {units}) (data (i32.const 0) \"{data}\")
               (func (export \"run\")
                 (memory.fill (i32.const {DATA}) (i32.const 7) (i32.const {}))))",
            self.written
        )
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Demand,
    Madvise,
    Memset,
    Scan,
    Pool,
}

const WAYS: [(Way, &str); 5] = [
    (Way::Demand, "on demand: mmap, CoW image"),
    (Way::Madvise, "pooling: CoW image, madvise"),
    (Way::Memset, "pooling: memset of what it writes"),
    (Way::Scan, "pooling: memset, PAGEMAP_SCAN"),
    (Way::Pool, "prezero::Pool"),
];

/// How instances come: threads that make them, and the pause of each after one.
const LOADS: [(usize, Duration); 4] =
    [(1, Duration::ZERO), (2, Duration::ZERO), (16, Duration::ZERO), (1, Duration::from_millis(1))];

/// A way that is set up for a kind of module.
struct Ready {
    engine: Engine,
    instance: InstancePre<()>,
    written: usize,
    slots: Option<Arc<Slots>>,
}

fn ready(way: Way, kind: &Kind) -> Option<Ready> {
    let most = LOADS.map(|(threads, _)| threads).into_iter().max().unwrap_or(1);
    let mut config = Config::new();
    let mut pooling = PoolingAllocationConfig::new();
    pooling.total_core_instances(most as u32).total_memories(most as u32);
    pooling.total_tables(most as u32).max_memory_size(kind.bytes);
    let mut slots = None;
    match way {
        Way::Demand | Way::Madvise => {}
        Way::Memset => {
            pooling.linear_memory_keep_resident(DATA + kind.written);
        }
        Way::Scan if PoolingAllocationConfig::is_pagemap_scan_available() => {
            pooling.linear_memory_keep_resident(kind.bytes).pagemap_scan(Enabled::Yes);
        }
        Way::Scan => return None,
        Way::Pool => slots = Some(Arc::new(Slots::new(most, kind.bytes))),
    }
    match &slots {
        Some(slots) => {
            // An image maps over memory that wasmtime mapped itself; into a slot the data is copied.
            config.with_host_memory(slots.clone()).memory_init_cow(false);
        }
        None if way != Way::Demand => {
            config.allocation_strategy(InstanceAllocationStrategy::Pooling(pooling));
        }
        None => {}
    }
    let engine = Engine::new(&config).expect("an engine");
    let module = Module::new(&engine, kind.text()).expect("a module");
    let instance = Linker::new(&engine).instantiate_pre(&module).expect("no import");
    Some(Ready { engine, instance, written: kind.written, slots })
}

impl Ready {
    /// Makes an instance, has it write, and drops it. The time that this took, without `look` at its memory before.
    fn serve(&self, look: impl FnOnce(&[u8])) -> Duration {
        let began = Instant::now();
        let mut store = Store::new(&self.engine, ());
        let instance = self.instance.instantiate(&mut store).expect("an instance");
        let looked = Instant::now();
        look(instance.get_memory(&mut store, "memory").expect("a memory").data(&store));
        let looked = looked.elapsed();
        let run = instance.get_typed_func::<(), ()>(&mut store, "run").expect("the function");
        run.call(&mut store, ()).expect("it writes");
        drop(store);
        began.elapsed() - looked
    }

    /// An instance's memory is as its module says where instances write. A look elsewhere would touch more of it.
    fn check(&self) {
        self.serve(|memory| {
            let (data, rest) = memory.split_at(DATA);
            assert!(data.chunks(8).all(|word| word == b"prezero."), "not the module's data");
            assert!(rest[..self.written].iter().all(|&byte| byte == 0), "a false zero");
        });
    }

    /// One turn: instances a second, the 99th percentile in microseconds, CPU microseconds an instance, and the part of
    /// the memories that lay ready in the pool, per cent.
    fn turn(&self, (threads, pause): (usize, Duration), time: Duration) -> [f64; 4] {
        let start = Barrier::new(threads + 1);
        let work = || {
            start.wait();
            let (began, mut times) = (Instant::now(), vec![]);
            // Once at least, whatever else the CPU does.
            while times.is_empty() || began.elapsed() < time {
                times.push(self.serve(|_| {}));
                if !pause.is_zero() {
                    std::thread::sleep(pause);
                }
            }
            times
        };
        self.check();
        let taken = || self.slots.as_ref().map_or([0.0; 2], |slots| slots.taken());
        let before = taken();
        let (used, began, mut times) = std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let (used, began) = (cpu_time(), Instant::now());
            start.wait();
            let times = all.into_iter().flat_map(|thread| thread.join().expect("it served"));
            (used, began, times.collect::<Vec<_>>())
        });
        let rate = times.len() as f64 / began.elapsed().as_secs_f64();
        // What a thread of the pool does for the last instances belongs to them.
        std::thread::sleep(Duration::from_millis(20));
        let cpu = (cpu_time() - used).as_secs_f64() * 1e6 / times.len() as f64;
        let after = taken();
        self.check();
        times.sort();
        let ready = (after[0] - before[0]) / (after[1] - before[1]).max(1.0) * 100.0;
        [rate, times[times.len() * 99 / 100].as_secs_f64() * 1e6, cpu, ready]
    }
}

/// Of all threads of the process, those that ended too.
fn cpu_time() -> Duration {
    let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut used) };
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut args = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let (rounds, ms) = (args.next().unwrap_or(9), args.next().unwrap_or(300));
    print!("{:36}", "a second, p99 us, CPU us");
    for (threads, pause) in LOADS {
        let pauses = if pause.is_zero() { "" } else { ", pauses" };
        print!("{:>30}", format!("threads: {threads}{pauses}"));
    }
    println!();
    for kind in &KINDS {
        println!("{}", kind.name);
        let ways: Vec<_> = WAYS.map(|(way, name)| (name, ready(way, kind))).into();
        // Round after round: other work on the machine meets all ways.
        let mut seen = vec![[const { vec![] }; LOADS.len()]; ways.len()];
        for _ in 0..rounds {
            for (nth, load) in LOADS.into_iter().enumerate() {
                for ((_, ready), seen) in ways.iter().zip(&mut seen) {
                    let time = Duration::from_millis(ms);
                    seen[nth].extend(ready.as_ref().map(|it| it.turn(load, time)));
                }
            }
        }
        for ((name, ready), seen) in ways.iter().zip(&seen) {
            let Some(ready) = ready else {
                println!("  {name:34} not on this kernel");
                continue;
            };
            let of = |figure: usize| {
                let medians = |load: &Vec<[f64; 4]>| median(load.iter().map(|turn| turn[figure]));
                seen.each_ref().map(medians)
            };
            print!("  {name:34}");
            for ((rate, p99), cpu) in of(0).into_iter().zip(of(1)).zip(of(2)) {
                print!("{rate:>10.0}{p99:>11.1}{cpu:>9.1}");
            }
            println!();
            if ready.slots.is_some() {
                print!("{:36}", "    of these zero before, %");
                of(3).iter().for_each(|ready| print!("{ready:>30.0}"));
                println!();
            }
        }
    }
}
