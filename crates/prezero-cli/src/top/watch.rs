//! What `prezero top` knows: every process with a panel, the broker, and how they were.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use prezero::internal::ORDERS;
use prezero_report::panel::{Panel, Reading};
use prezero_sys::escape::escape;
use prezerod::client::Door;
use serde_json::{Value, json};

use super::broker::Watched;
use crate::stat::Stat;

/// Looks that a sparkline shows.
pub const PAST: usize = 60;
/// Columns of free blocks.
pub const STATES: [&str; 4] = ["dirty", "zero", "absent", "mixed"];

/// Everything, as of the last look.
#[derive(Debug)]
pub struct Watch {
    /// By process number.
    pub processes: BTreeMap<u32, Process>,
    /// The broker, if there is one.
    pub broker: Watched,
    /// Percent of the last ten seconds in which some task waited for memory, and for a CPU;
    /// `None`: the kernel does not say.
    pub pressure: Option<[f64; 2]>,
}

/// A process under prezero.
#[derive(Debug)]
pub struct Process {
    panel: Panel,
    /// When the process began, so that a number is not taken for another's.
    began: String,
    /// The program's name.
    pub command: String,
    /// The last look.
    pub now: Reading,
    last: Option<(Instant, Reading)>,
    taken: Instant,
    /// Bytes scrubbed a second, hits a second, zero bytes: look by look.
    pub scrubbed: Vec<u64>,
    /// Hits a second.
    pub hits: Vec<u64>,
    /// Resident zero bytes.
    pub zero: Vec<u64>,
}

impl Watch {
    /// Nothing yet.
    pub fn new(door: Door) -> Watch {
        Watch { processes: BTreeMap::new(), broker: Watched::new(door), pressure: None }
    }

    /// Looks at everything again.
    pub fn look(&mut self) {
        let mut found = BTreeMap::new();
        for (pid, began) in running() {
            let known = self.processes.remove(&pid).filter(|process| process.began == began);
            if let Some(process) =
                known.map_or_else(|| Process::find(pid, began), |process| process.again(pid))
            {
                found.insert(pid, process);
            }
        }
        self.processes = found;
        self.broker.look();
        self.pressure = stalled("memory").zip(stalled("cpu")).map(|(memory, cpu)| [memory, cpu]);
    }

    /// Everything, for scripts.
    pub fn json(&self) -> Value {
        let processes: Vec<_> = self.processes.values().map(Process::json).collect();
        let [memory, cpu] = self.pressure.map_or([None; 2], |each| each.map(Some));
        json!({
            "processes": processes,
            "broker": self.broker.json(),
            "pressure": {"memory_some_percent": memory, "cpu_some_percent": cpu},
        })
    }
}

/// Processes, and when each began.
fn running() -> Vec<(u32, String)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return vec![] };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| Some((pid, began(pid)?))).collect()
}

/// The mean of the last ten seconds in `/proc/pressure`, percent.
fn stalled(what: &str) -> Option<f64> {
    average(&std::fs::read_to_string(format!("/proc/pressure/{what}")).ok()?)
}

fn average(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split(' ').find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
}

/// Adds a figure to a past that a view draws. A process under prezero may have invented it, so it
/// is cut to a size that arithmetic cannot overflow.
pub fn note(list: &mut Vec<u64>, figure: f64) {
    const MOST: u64 = 1 << 48;
    if list.len() == PAST {
        list.remove(0);
    }
    list.push((figure as u64).min(MOST));
}

fn began(pid: u32) -> Option<String> {
    Stat::of(pid)?.began().map(str::to_string)
}

impl Process {
    fn find(pid: u32, began: String) -> Option<Process> {
        let panel = Panel::new(prezero_sys::panel::of_process(pid).ok()?)?;
        let command =
            std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm"));
        let now = panel.read();
        let command = escape(command.unwrap_or_default().trim_end());
        let (scrubbed, hits, zero) = (vec![], vec![], vec![]);
        let taken = Instant::now();
        let mut process =
            Process { panel, began, command, now, last: None, taken, scrubbed, hits, zero };
        process.note();
        Some(process)
    }

    fn again(mut self, pid: u32) -> Option<Process> {
        // Until the next scrubd has a panel the last values stand.
        if self.panel.is_over()
            && let Ok(mapped) = prezero_sys::panel::of_process(pid)
            && let Some(panel) = Panel::new(mapped)
        {
            self.panel = panel;
        }
        let now = self.panel.read();
        self.last = Some((self.taken, std::mem::replace(&mut self.now, now)));
        self.taken = Instant::now();
        self.note();
        Some(self)
    }

    fn note(&mut self) {
        let figures = [
            self.rate("scrubbed_bytes"),
            self.rate("hits"),
            self.now.number("resident_zero_bytes"),
        ];
        let lists = [&mut self.scrubbed, &mut self.hits, &mut self.zero];
        lists.into_iter().zip(figures).for_each(|(list, figure)| note(list, figure));
    }

    /// How much a counter rose a second, between the moments at which the last two looks' values
    /// were written; 0 if they are the same ones.
    pub fn rate(&self, name: &str) -> f64 {
        let Some((then, last)) = &self.last else { return 0.0 };
        let passed = self.taken.duration_since(*then).as_secs_f64() + last.age.as_secs_f64()
            - self.now.age.as_secs_f64();
        let rise = self.now.number(name) - last.number(name);
        if passed > 1e-3 { (rise / passed).max(0.0) } else { 0.0 }
    }

    /// Of the requests for zeroed memory, those served from the stock; `None` without any.
    pub fn hit_share(&self) -> Option<f64> {
        let (hits, misses) = (self.now.number("hits"), self.now.number("misses"));
        (hits + misses > 0.0).then(|| hits / (hits + misses))
    }

    /// Of a CPU, that scrubd takes.
    pub fn cpu_share(&self) -> f64 {
        self.rate("scrubd_cpu_ns") / 1e9
    }

    /// Zeroes made in vain: taken by requests that wanted none, or given back.
    pub fn wasted(&self) -> f64 {
        self.now.number("waste_bytes") + self.now.number("unused_zero_bytes")
    }

    /// Free blocks of an order, in the order of [`STATES`].
    pub fn free(&self, order: usize) -> [u64; 4] {
        STATES.map(|state| self.now.number(&format!("free_blocks_{state}_{order}")) as u64)
    }

    /// The orders that have free blocks.
    pub fn orders(&self) -> impl Iterator<Item = usize> {
        (0..ORDERS).filter(|&order| self.free(order) != [0; 4])
    }

    fn json(&self) -> Value {
        let mut json = crate::ctl::as_json(&self.now);
        json["command"] = self.command.as_str().into();
        json["hit_share"] = self.hit_share().into();
        json["scrubbed_bytes_per_s"] = self.rate("scrubbed_bytes").into();
        json["hits_per_s"] = self.rate("hits").into();
        json["misses_per_s"] = self.rate("misses").into();
        json["scrubd_cpus"] = self.cpu_share().into();
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_began_once() {
        let own = began(std::process::id()).unwrap();
        assert!(own.parse::<u64>().unwrap() > 0);
        assert_eq!(began(std::process::id()), Some(own));
        assert_eq!(began(u32::MAX), None);
        assert!(running().iter().any(|(pid, _)| *pid == std::process::id()));
    }

    #[test]
    fn pressure_is_the_mean_of_ten_seconds() {
        let text = "some avg10=1.25 avg60=0.10 avg300=0.00 total=5\nfull avg10=9.00 total=1\n";
        assert_eq!(average(text), Some(1.25));
        assert_eq!(average("nonsense"), None);
    }

    #[test]
    fn a_past_is_bounded_in_length_and_height() {
        let mut past = vec![];
        for figure in [f64::NAN, -1.0, f64::INFINITY].into_iter().chain((0..70).map(f64::from)) {
            note(&mut past, figure);
        }
        assert_eq!((past.len(), past[PAST - 1]), (PAST, 69));
        note(&mut past, f64::MAX);
        assert_eq!(past[PAST - 1], 1 << 48);
    }

    #[test]
    fn without_processes_there_is_an_empty_list() {
        let mut watch = Watch::new(Door::named("/nonexistent".as_ref()));
        watch.look();
        assert!(watch.json()["processes"].is_array() && watch.json()["broker"].is_null());
    }
}
