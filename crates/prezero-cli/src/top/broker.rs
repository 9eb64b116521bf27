//! What `prezero top` knows and draws of the broker: stock by size of page and state, its holders,
//! what it cost.
//!
//! The broker is asked by a thread of its own: one that is stopped, or busy, must not stop the
//! picture of everything else.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use prezero_sys::escape::escape;
use prezerod::client::{Client, Door};
use prezerod::protocol::Report;
use serde_json::{Value, json};

use super::watch::note;

/// The longest wait for an answer. The last one is shown after that.
const PATIENCE: Duration = Duration::from_secs(2);

/// The broker, looked at again and again.
#[derive(Debug)]
pub struct Watched {
    ask: SyncSender<()>,
    answers: Receiver<Option<Broker>>,
    /// Whether a question has not been answered.
    asked: bool,
    /// What it said last; `None`: no broker answers there.
    pub broker: Option<Broker>,
    /// Bytes ready, made a second, leases a second: look by look.
    pub past: [Vec<u64>; 3],
    /// Between the last two answers.
    rates: [f64; 2],
}

/// What it said once.
#[derive(Clone, Debug)]
pub struct Broker {
    taken: Instant,
    /// What `prezero stock --json` prints.
    pub report: Value,
    /// Its counters, without `prezerod_` and `_total`.
    counters: BTreeMap<String, f64>,
}

/// Bytes of a page, node, the account that is charged, bytes of a piece.
pub type Kind = (String, u64, String, u64);

/// Memory of one kind in pieces of one size.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Row {
    /// Which.
    pub kind: Kind,
    /// Pieces that lie ready, are leased, and are wanted to lie ready.
    pub pieces: [u64; 3],
    /// Seconds for which the oldest has lain ready.
    pub age: f64,
    /// CPU seconds that those ready and leased took.
    pub cost: f64,
    /// Why fewer lie ready than are wanted, if so.
    pub shortage: Option<String>,
}

impl Watched {
    /// Nothing yet.
    pub fn new(door: Door) -> Watched {
        let (ask, questions) = sync_channel(1);
        let (answer, answers) = sync_channel(1);
        // Ends with the channel; one that waits for the broker ends with the program.
        let _ = std::thread::Builder::new().name("broker".into()).spawn(move || {
            for () in questions {
                if answer.send(Broker::ask(&door)).is_err() {
                    break;
                }
            }
        });
        let past = [vec![], vec![], vec![]];
        Watched { ask, answers, asked: false, broker: None, past, rates: [0.0; 2] }
    }

    /// One that has said this.
    #[cfg(test)]
    pub fn seen(report: Value) -> Watched {
        let mut watched = Watched::new(Door::named("".as_ref()));
        let taken = Instant::now();
        watched.broker = Some(Broker { taken, report, counters: BTreeMap::new() });
        watched
    }

    /// Asks again, unless it still thinks about the last question.
    pub fn look(&mut self) {
        if !self.asked {
            self.asked = self.ask.try_send(()).is_ok();
            if self.asked
                && let Ok(answer) = self.answers.recv_timeout(PATIENCE)
            {
                self.take(answer);
            }
            return;
        }
        match self.answers.try_recv() {
            Ok(answer) => self.take(answer),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
    }

    fn take(&mut self, answer: Option<Broker>) {
        self.asked = false;
        self.rates = match (&self.broker, &answer) {
            (Some(then), Some(now)) => {
                ["made_bytes", "lease_hits"].map(|name| now.rate(then, name))
            }
            _ => [0.0; 2],
        };
        if let Some(broker) = &answer {
            let ready = broker.sum("ready", "bytes");
            let figures = [ready, self.rates[0], self.rates[1]];
            self.past.iter_mut().zip(figures).for_each(|(list, figure)| note(list, figure));
        }
        self.broker = answer;
    }

    /// For how long it has not answered, if that is long.
    pub fn silent(&self) -> Option<Duration> {
        let last = self.broker.as_ref().map(|broker| broker.taken.elapsed())?;
        (self.asked && last > PATIENCE).then_some(last)
    }

    /// Everything, for scripts; `null` without a broker.
    pub fn json(&self) -> Value {
        let Some(broker) = &self.broker else { return Value::Null };
        let mut json = broker.report.clone();
        json["counters"] = json!(broker.counters);
        json["made_bytes_per_s"] = self.rates[0].into();
        json["hits_per_s"] = self.rates[1].into();
        json["silent_s"] = self.silent().map(|silent| silent.as_secs_f64()).into();
        json
    }
}

impl Broker {
    fn ask(door: &Door) -> Option<Broker> {
        let mut client = Client::enter(door).ok()?;
        let report = serde_json::from_str(&client.report(Report::Stock).ok()?).ok()?;
        let counters = counters(&client.report(Report::Metrics).ok()?);
        Some(Broker { taken: Instant::now(), report, counters })
    }

    /// A counter; 0 if there is no such name.
    pub fn counter(&self, name: &str) -> f64 {
        self.counters.get(name).copied().unwrap_or(0.0)
    }

    /// A number of its report; 0 if there is no such name.
    pub fn number(&self, name: &str) -> f64 {
        self.report[name].as_f64().unwrap_or(0.0)
    }

    /// A list of its report.
    pub fn list(&self, name: &str) -> &[Value] {
        self.report[name].as_array().map_or(&[], Vec::as_slice)
    }

    /// Of a list, a number of each, together.
    pub fn sum(&self, list: &str, name: &str) -> f64 {
        // The sum of no numbers is -0.
        self.list(list).iter().filter_map(|row| row[name].as_f64()).sum::<f64>() + 0.0
    }

    fn rate(&self, then: &Broker, name: &str) -> f64 {
        let passed = self.taken.duration_since(then.taken).as_secs_f64();
        let rise = self.counter(name) - then.counter(name);
        if passed > 1e-3 { (rise / passed).max(0.0) } else { 0.0 }
    }

    /// Memory by kind, node, payer and size.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = vec![];
        for (state, list) in ["ready", "leased", "wanted"].into_iter().enumerate() {
            for piece in self.list(list) {
                let number = |name: &str| piece[name].as_u64().unwrap_or(0);
                // A request does not say which page it wants: that is the broker's choice.
                let page = super::view::size(number("page_bytes") as f64);
                let payer = piece["charged"].as_str().unwrap_or("broker");
                let kind = (page, number("node"), payer.into(), number("bytes"));
                let at = rows.iter().position(|row| row.kind == kind).unwrap_or_else(|| {
                    rows.push(Row { kind, ..Row::default() });
                    rows.len() - 1
                });
                let row = &mut rows[at];
                row.pieces[state] += if list == "wanted" { number("target") } else { 1 };
                row.cost += piece["cpu_seconds"].as_f64().unwrap_or(0.0);
                row.shortage =
                    row.shortage.take().or_else(|| crate::stock::shortage(&piece["shortage"]));
                if list == "ready" {
                    row.age = row.age.max(piece["age_seconds"].as_f64().unwrap_or(0.0));
                }
            }
        }
        rows
    }

    /// The holders of pieces of a kind.
    pub fn holders(&self, row: &Row) -> Vec<String> {
        let (page, node, payer, bytes) = &row.kind;
        let same = |lease: &&Value| {
            super::view::size(lease["page_bytes"].as_f64().unwrap_or(0.0)) == *page
                && lease["node"].as_u64() == Some(*node)
                && lease["charged"].as_str().unwrap_or("broker") == payer
                && lease["bytes"].as_u64() == Some(*bytes)
        };
        let text = |lease: &Value| {
            format!(
                "pid {} of {}, for {:.0} s",
                lease["pid"],
                escape(lease["tenant"].as_str().unwrap_or("-")),
                lease["age_seconds"].as_f64().unwrap_or(0.0)
            )
        };
        self.list("leased").iter().filter(same).map(text).collect()
    }
}

/// The counters of a text as Prometheus reads it: those that have no labels.
fn counters(text: &str) -> BTreeMap<String, f64> {
    let counter = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        let name = name.strip_prefix("prezerod_")?.strip_suffix("_total")?;
        Some((name.to_string(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(counter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(counters: &str, report: Value) -> Broker {
        Broker { taken: Instant::now(), report, counters: super::counters(counters) }
    }

    #[test]
    fn pieces_are_counted_by_kind_and_state() {
        let piece = |bytes: u64, more: Value| {
            let mut piece = json!({"page_bytes": 2 << 20, "node": 0, "charged": null, "bytes": bytes,
                                   "cpu_seconds": 0.5, "age_seconds": 7.0});
            piece.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            piece
        };
        let report = json!({
            "ready": [piece(4 << 20, json!({})), piece(4 << 20, json!({"age_seconds": 9.0}))],
            "leased": [piece(4 << 20, json!({"pid": 12, "tenant": "uid-0\u{1b}"})), piece(1 << 30, json!({}))],
            "wanted": [piece(4 << 20, json!({"target": 3, "node": null, "shortage": {"why": "busy"}}))],
        });
        let rows = broker("", report.clone()).rows();
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!(rows[0].kind, ("2.0M".into(), 0, "broker".into(), 4 << 20));
        assert_eq!((rows[0].pieces, rows[0].age), ([2, 1, 3], 9.0));
        assert_eq!(
            rows.iter().map(|row| row.shortage.as_deref()).collect::<Vec<_>>(),
            [Some("busy"), None]
        );
        assert_eq!(broker("", report).holders(&rows[0]), ["pid 12 of uid-0\\u{1b}, for 7 s"]);
    }

    #[test]
    fn counters_are_read_as_prometheus_reads_them() {
        let text = "# TYPE prezerod_audits_total counter\nprezerod_audits_total 12\n\
                    prezerod_memory_bytes{state=\"ready\"} 5\nprezerod_lease_hits_total 3\nnonsense\n";
        let broker = broker(text, json!({}));
        assert_eq!((broker.counter("audits"), broker.counter("lease_hits")), (12.0, 3.0));
        assert_eq!(format!("{}", broker.sum("leased", "bytes")), "0");
        assert_eq!((broker.counter("nothing"), broker.counters.len()), (0.0, 2));
    }

    #[test]
    fn a_broker_that_says_nothing_stops_no_view() {
        let dir = std::env::temp_dir().join(format!("prezero-mute-{}", std::process::id()));
        let (address, kind) =
            (rustix::net::SocketAddrUnix::new(&dir).unwrap(), rustix::net::SocketType::SEQPACKET);
        let mute = rustix::net::socket(rustix::net::AddressFamily::UNIX, kind, None).unwrap();
        rustix::net::bind(&mute, &address).unwrap();
        rustix::net::listen(&mute, 1).unwrap();
        let mut watched = Watched::new(Door::named(&dir));
        watched.look();
        assert!(watched.asked && watched.broker.is_none(), "it waits no more");
        // On a busy machine any one may take long, without waiting.
        let waits = |_| {
            let began = Instant::now();
            watched.look();
            began.elapsed() >= PATIENCE
        };
        assert!(!(0..10).all(waits), "and not again");
        assert!(watched.json().is_null());
        std::fs::remove_file(dir).unwrap();
    }
}
