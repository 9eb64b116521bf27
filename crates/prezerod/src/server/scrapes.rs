//! The thread that scrapers talk to: see `http`.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use prezero_sys::thread;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, accept_with, send};

/// Most scrapes at a time.
const MOST: usize = 64;
/// Longest request, bytes.
const REQUEST: usize = 4096;
/// Longest that a scrape may take, ns.
const PATIENCE_NS: u64 = 5_000_000_000;
/// The time for which a text is new enough, ns.
/// Moved by: `ps -o cputime` of the broker while it is scraped.
const FRESH_NS: u64 = 100_000_000;
/// The time for which the thread rests where no descriptor is left.
const BACK_OFF: Duration = Duration::from_millis(100);
/// The thread looks around this often while a client is connected.
const LOOK: Duration = Duration::from_millis(250);

#[derive(Debug)]
struct Scrape {
    socket: OwnedFd,
    began: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// So much of the request is there.
    Asks(Vec<u8>),
    /// It is whole, and the broker is asked.
    Waits,
    /// The answer, and how much of it is on its way.
    Reads(Arc<[u8]>, usize),
}

/// See the module.
#[derive(Debug)]
pub struct Scrapes {
    listener: OwnedFd,
    broker: UnixStream,
    texts: Receiver<String>,
    /// Whether the broker owes a text.
    asked: bool,
    /// The last answer, and since when.
    fresh: Option<(u64, Arc<[u8]>)>,
    all: BTreeMap<u64, Scrape>,
    numbers: u64,
}

/// What an event of `poll` is about.
#[derive(Clone, Copy, Debug)]
enum Source {
    Broker,
    Listener,
    Scrape(u64),
}

impl Scrapes {
    /// Scrapers come over `listener`; `broker` is the loop, which sends its texts over `texts`.
    pub fn new(listener: OwnedFd, broker: UnixStream, texts: Receiver<String>) -> Scrapes {
        Scrapes {
            listener,
            broker,
            texts,
            asked: false,
            fresh: None,
            all: BTreeMap::new(),
            numbers: 0,
        }
    }

    /// Serves until the broker is gone.
    pub fn run(mut self) {
        loop {
            let Ok(ready) = self.wait() else { return };
            let now = thread::monotonic_ns();
            for source in ready {
                match source {
                    Source::Broker if !self.hear(now) => return,
                    Source::Broker => {}
                    Source::Listener => self.accept(now),
                    Source::Scrape(id) => self.serve(id),
                }
            }
            self.all.retain(|_, scrape| now.saturating_sub(scrape.began) < PATIENCE_NS);
            if !self.answer(now) {
                return;
            }
        }
    }

    fn wait(&self) -> Result<Vec<Source>, Errno> {
        let mut sources = vec![Source::Broker, Source::Listener];
        let mut polled = vec![
            PollFd::new(&self.broker, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        for (&id, scrape) in &self.all {
            let flags = match scrape.state {
                State::Asks(_) => PollFlags::IN,
                State::Waits => continue,
                State::Reads(..) => PollFlags::OUT,
            };
            sources.push(Source::Scrape(id));
            polled.push(PollFd::new(&scrape.socket, flags));
        }
        let timeout = Timespec::try_from(LOOK).ok().filter(|_| !self.all.is_empty());
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let ready = polled.iter().zip(sources).filter(|(fd, _)| !fd.revents().is_empty());
        Ok(ready.map(|(_, source)| source).collect())
    }

    fn accept(&mut self, now: u64) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match accept_with(&self.listener, flags) {
            Ok(socket) => {
                if self.all.len() >= MOST {
                    self.all.pop_first();
                }
                self.numbers += 1;
                let scrape = Scrape { socket, began: now, state: State::Asks(vec![]) };
                self.all.insert(self.numbers, scrape);
                // Most have asked by now.
                self.serve(self.numbers);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => std::thread::sleep(BACK_OFF),
        }
    }

    /// Reads or writes on.
    fn serve(&mut self, id: u64) {
        let Some(scrape) = self.all.get_mut(&id) else { return };
        let goes_on = match &mut scrape.state {
            State::Asks(request) => {
                let mut bytes = [0u8; REQUEST];
                match rustix::io::read(&scrape.socket, &mut bytes) {
                    Err(Errno::AGAIN | Errno::INTR) => true,
                    Ok(0) | Err(_) => false,
                    Ok(n) => {
                        request.extend(&bytes[..n]);
                        // Some end lines with a line feed alone.
                        let mut ends = request.windows(4);
                        if ends.any(|end| end == b"\r\n\r\n") || request.ends_with(b"\n\n") {
                            scrape.state = asked(request);
                        }
                        matches!(&scrape.state, State::Waits | State::Reads(..))
                            || matches!(&scrape.state, State::Asks(r) if r.len() <= REQUEST)
                    }
                }
            }
            State::Waits => true,
            State::Reads(answer, sent) => {
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                match send(&scrape.socket, &answer[*sent..], flags) {
                    Err(Errno::AGAIN | Errno::INTR) => true,
                    Err(_) => false,
                    Ok(n) => {
                        *sent += n;
                        *sent < answer.len()
                    }
                }
            }
        };
        if !goes_on {
            self.all.remove(&id);
        }
    }

    /// Takes the broker's text; false: it is gone.
    fn hear(&mut self, now: u64) -> bool {
        match rustix::io::read(&self.broker, &mut [0u8; 1]) {
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Ok(1..) => {}
            Ok(0) | Err(_) => return false,
        }
        self.asked = false;
        let Ok(text) = self.texts.try_recv() else { return false };
        let kind = "application/openmetrics-text; version=1.0.0";
        self.fresh = Some((now, answer("200 OK", kind, &text)));
        true
    }

    /// Gives the scrapes that wait the text, or asks the broker for one; false: it is gone.
    fn answer(&mut self, now: u64) -> bool {
        let mut waiting =
            self.all.values_mut().filter(|scrape| matches!(scrape.state, State::Waits)).peekable();
        if waiting.peek().is_none() {
            return true;
        }
        match &self.fresh {
            Some((since, answer)) if now.saturating_sub(*since) < FRESH_NS => {
                waiting.for_each(|scrape| scrape.state = State::Reads(answer.clone(), 0));
                true
            }
            _ if self.asked => true,
            _ => {
                self.asked = true;
                rustix::io::write(&self.broker, b"x").is_ok()
            }
        }
    }
}

/// What becomes of a request that is whole.
fn asked(request: &[u8]) -> State {
    // What follows a `?` selects nothing here.
    let known = [&b"GET /metrics"[..], b"GET /"].iter().any(|known| {
        let rest = request.strip_prefix(*known);
        rest.is_some_and(|rest| matches!(rest.first(), Some(b' ' | b'?')))
    });
    match known {
        true => State::Waits,
        false => State::Reads(answer("404 Not Found", "text/plain", "prezerod: GET /metrics\n"), 0),
    }
}

fn answer(status: &str, kind: &str, body: &str) -> Arc<[u8]> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    (head + body).into_bytes().into()
}
