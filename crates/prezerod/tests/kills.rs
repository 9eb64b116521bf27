//! `kill -9` in every state: of the client, of the broker, of its fillers. No page is lost, no
//! lease harmed, the next broker serves, and keeps no descriptor of what is gone.
//!
//! With pages of a pool where some can be reserved: then `HugePages_Free` must be back where it
//! was in the end. Elsewhere with transparent ones, which the kernel does not count. One test, because the
//! pool is the machine's.

mod common;

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{
    Daemon, PATIENCE, Reserved, free_pages, possible, until, use_up, wait_for_free, want,
};
use prezerod::client::{Client, ClientError, Lease};
use prezerod::protocol::{Answer, MAX_ANSWER, Page, Request};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use rustix::process::{Signal, kill_process};

/// Of a lease, and of one that takes a filler some time.
const SMALL: u64 = 4;
const LARGE: u64 = 96;
/// Pages that are reserved: what the stock, a client and its successor hold at once.
const PAGES: u64 = 80;
/// CPU time that a broker may take from its start to its first lease.
const RESTART_S: f64 = 1.0;

/// Where a client stands when a process is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Connected, and nothing asked.
    Connected,
    /// It waits for what is being made for it.
    Waiting,
    /// The lease was sent, and lies unread in its socket.
    Sent,
    /// It has the descriptor.
    Held,
    /// It has mapped and written all of it, and writes on.
    Mapped,
}

impl State {
    const ALL: [State; 5] =
        [State::Connected, State::Waiting, State::Sent, State::Held, State::Mapped];
}

/// Which processes are killed, in which order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Killed {
    Client,
    Broker,
    BrokerThenClient,
    Fillers,
}

/// A client in a process of its own: this program again, as [`client_process`].
struct Victim(Child);

impl Victim {
    /// Starts it, and waits until it stands where it should.
    fn at(state: State, daemon: &Daemon) -> Victim {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "client_process", "--ignored", "--nocapture", "--test-threads=1"])
            .env("KILLS_STATE", format!("{state:?}"))
            .env("KILLS_SOCKET", daemon.socket())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        said(&mut child, "<there>");
        Victim(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// What it has is what it should be, whatever became of the broker; it ends then.
    fn is_unharmed(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"?").unwrap();
        said(&mut self.0, "<unharmed>");
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads what a client says until it says this.
fn said(child: &mut Child, words: &str) {
    let (mut all, mut byte) = (vec![], [0u8]);
    while !all.ends_with(words.as_bytes()) {
        let read = child.stdout.as_mut().unwrap().read(&mut byte).unwrap();
        assert_eq!(read, 1, "it ended without {words:?}: {}", String::from_utf8_lossy(&all));
        all.push(byte[0]);
    }
}

/// No test: the client that is killed.
#[test]
#[ignore = "is started by the test below"]
fn client_process() {
    let Ok(state) = std::env::var("KILLS_STATE") else { return };
    let socket = std::env::var_os("KILLS_SOCKET").unwrap();
    let state = State::ALL.into_iter().find(|known| format!("{known:?}") == state).unwrap();
    let mut client = Client::connect(socket.as_ref()).unwrap();
    let request = |mib, wait_ms| Request::Lease { want: want(mib), wait_ms }.encode(1);
    match state {
        State::Connected => ask(|| client.available(Page::Huge, None).map(drop)),
        State::Waiting => {
            send(client.as_fd(), &request(LARGE, 600_000), SendFlags::NOSIGNAL).unwrap();
            // The broker reads in order: a client that hears the second answer was heard with the first.
            let again = request(LARGE, 0);
            send(client.as_fd(), &again, SendFlags::NOSIGNAL).unwrap();
            let (answer, _) = receive(&client);
            // Busy with the first; or it was made already.
            assert!(matches!(answer, Answer::No(..) | Answer::Lease(_)), "{answer:?}");
        }
        State::Sent => {
            send(client.as_fd(), &request(SMALL, 600_000), SendFlags::NOSIGNAL).unwrap();
            let mut polled = [PollFd::from_borrowed_fd(client.as_fd(), PollFlags::IN)];
            poll(&mut polled, None).unwrap();
        }
        State::Held | State::Mapped => {
            let lease = client.lease(want(SMALL), PATIENCE).unwrap();
            hold(&lease, state);
            return;
        }
    }
    say("<there>");
    asked();
    if state == State::Sent {
        let (answer, file) = receive(&client);
        let (Answer::Lease(granted), Some(file)) = (answer, file) else { panic!("no lease came") };
        use_up(&Lease { granted, file });
    }
    say("<unharmed>");
}

/// Holds a lease until it is asked whether it was harmed.
fn hold(lease: &Lease, state: State) {
    if state == State::Mapped {
        use_up(lease);
    }
    say("<there>");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let map = lease.map().unwrap();
            while state == State::Mapped && !over.load(Ordering::Relaxed) {
                map.touch(0, map.len(), 4096);
            }
        });
        asked();
        over.store(true, Ordering::Relaxed);
    });
    let map = lease.map().unwrap();
    let expected = if state == State::Mapped { 0xa5 } else { 0 };
    // SAFETY: the lease is ours alone, mapped, its size is sealed, and the writer has ended.
    let bytes = unsafe { std::slice::from_raw_parts(map.base().as_ptr(), map.len()) };
    assert!(bytes.iter().all(|&byte| byte == expected), "the lease lost its content");
    say("<unharmed>");
}

/// Until it is answered yes.
fn ask(mut question: impl FnMut() -> Result<(), ClientError>) {
    let answer = until("an answer", || match question() {
        Err(ClientError::When(..)) => None,
        answer => Some(answer),
    });
    answer.unwrap();
}

fn say(words: &str) {
    // Past the test harness, which would keep it to itself.
    let mut out = std::io::stdout().lock();
    out.write_all(words.as_bytes()).unwrap();
    out.flush().unwrap();
}

fn asked() {
    let mut byte = [0u8];
    // Its parent is gone otherwise, and so should it be.
    if std::io::stdin().read(&mut byte).unwrap_or(0) == 0 {
        std::process::exit(1);
    }
}

fn receive(client: &Client) -> (Answer, Option<OwnedFd>) {
    let mut packet = [0u8; MAX_ANSWER];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let slices = &mut [std::io::IoSliceMut::new(&mut packet)];
    let len = recvmsg(client.as_fd(), slices, &mut control, RecvFlags::empty()).unwrap().bytes;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    (Answer::decode(&packet[..len]).unwrap().1, file)
}

/// Kills those that are to be killed; says after how long the next broker has served, s.
fn drill(state: State, killed: Killed, daemon: &mut Daemon) -> Option<(f64, f64)> {
    let mut victim = Victim::at(state, daemon);
    match killed {
        Killed::Client => victim.kill(),
        Killed::Fillers => {
            for filler in daemon.fillers() {
                // One that has ended by itself is gone already.
                let _ = kill_process(filler, Signal::KILL);
            }
            victim.is_unharmed();
        }
        Killed::Broker | Killed::BrokerThenClient => {
            daemon.kill();
            let began = Instant::now();
            daemon.again();
            use_up(&daemon.lease(SMALL).unwrap());
            let took = (began.elapsed().as_secs_f64(), daemon.cpu_seconds());
            match killed {
                Killed::Broker => victim.is_unharmed(),
                _ => victim.kill(),
            }
            return Some(took);
        }
    }
    use_up(&daemon.lease(SMALL).unwrap());
    None
}

#[test]
fn kill_9_in_every_state_loses_no_page_and_harms_no_lease() {
    let pool = Reserved::new(Page::Huge, PAGES);
    if pool.is_none() && !possible() {
        return;
    }
    let backing = if pool.is_some() { "hugetlb" } else { "thp" };
    let start = free_pages();
    let config =
        format!("backing = \"{backing}\"\n[[stock]]\nsize = \"{SMALL}M\"\nkeep = 2\nmost = 2\n");
    let config = format!("limit = \"{}M\"\n{config}", 2 * SMALL);
    let mut daemon = Daemon::start(&config);
    let held = until("a broker at rest", || daemon.held());
    let nothing_left = |daemon: &Daemon| {
        until("descriptors to be closed", || match daemon.held() {
            now if now == Some(held) => Ok(()),
            now => Err(format!("{now:?} are open, not {held}")),
        });
    };
    let (mut slowest, mut cpu) = (0.0f64, 0.0f64);
    for state in State::ALL {
        for killed in [Killed::Client, Killed::Broker, Killed::BrokerThenClient, Killed::Fillers] {
            // Sometimes while stock is made, sometimes when all of it lies ready.
            if matches!(killed, Killed::Client | Killed::Broker) {
                daemon.wait_for_ready(2);
            }
            if let Some(took) = drill(state, killed, &mut daemon) {
                (slowest, cpu) = (slowest.max(took.0), cpu.max(took.1));
            }
            nothing_left(&daemon);
            if pool.is_some() {
                // All that held something are gone: what is not free is the stock.
                daemon.wait_for_ready(2);
                wait_for_free(start - 2 * SMALL / 2);
            }
        }
    }
    vanish(&daemon);
    nothing_left(&daemon);
    if pool.is_some() {
        daemon.wait_for_ready(2);
        wait_for_free(start - 2 * SMALL / 2);
    }
    daemon.kill();
    if pool.is_some() {
        wait_for_free(start);
    }
    eprintln!(
        "{backing}: the next broker has served after {:.0} ms at most, of which {:.0} ms of CPU time",
        slowest * 1e3,
        cpu * 1e3
    );
    // By the clock a busy machine may take any time.
    assert!(cpu < RESTART_S, "{cpu} s of CPU time to serve again");
}

/// A thousand clients that end at every moment of a request, a lease in their socket or not.
fn vanish(daemon: &Daemon) {
    for round in 0..1000 {
        let client = daemon.client();
        let request = match round % 4 {
            0 => continue,
            1 => Request::Lease { want: want(LARGE), wait_ms: 60_000 },
            2 => Request::Available { page: Page::Huge, node: None },
            _ => Request::Lease { want: want(SMALL), wait_ms: 60_000 },
        };
        // One that was turned away, since the broker has not noticed yet how many are gone, hears it.
        let _ = send(client.as_fd(), &request.encode(1), SendFlags::NOSIGNAL);
    }
    // Their pages are on their way back; the next client is served when they are.
    use_up(&until("a lease", || daemon.client().lease(want(SMALL), Duration::from_secs(5))));
}
