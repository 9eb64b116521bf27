//! A lease within a time: connecting, a broker with too many connections, and the answer included.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Client, ClientError, Door, Lease};
use crate::protocol::{Otherwise, Reason, Want};

/// How long a broker may take to say that there is no lease, beyond the time that its client waits.
const ANSWER: Duration = Duration::from_secs(1);
/// The longest wait of a client that has memory of its own.
/// Moved by: `tests/system/busy.py --plain`.
pub const PLAIN_WAIT: Duration = Duration::from_secs(1);
/// Between two attempts to be accepted.
const ATTEMPT: Duration = Duration::from_millis(20);

/// Leases this from the broker behind `door`. The call returns within `wait` and a second.
///
/// A broker that has too many connections is asked again until `wait` is over.
///
/// # Errors
/// As for [`Client::enter`] and [`Client::lease`]; [`ClientError::Silent`] for a broker that is
/// stopped.
pub fn lease_within(
    door: &Door,
    want: Want,
    wait: Duration,
    otherwise: Otherwise,
) -> Result<Lease, ClientError> {
    let began = Instant::now();
    // A time that no clock reaches is none.
    let until = began.checked_add(wait.saturating_add(ANSWER));
    loop {
        let left = || wait.saturating_sub(began.elapsed());
        let ask = |mut client: Client| match otherwise {
            Otherwise::ComesBack => client.lease(want, left()),
            Otherwise::Plain => client.lease_or_plain(want, left()),
        };
        let answer = Client::enter_until(door, until).and_then(ask);
        match answer {
            Err(ClientError::No(Reason::Busy, _)) if !left().is_zero() => {
                sleep(ATTEMPT.min(left()));
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::path::PathBuf;

    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
        listen, recv, send, socket_with,
    };

    use super::*;
    use crate::protocol::{Answer, Page, Request};

    const WANT: Want = Want { bytes: 2 << 20, page: Page::Huge, node: None };

    /// A socket that listens, removed when dropped.
    struct Listens(PathBuf, OwnedFd);

    impl Listens {
        fn new(name: &str, backlog: i32) -> Listens {
            let name = format!("prezero-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
            let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
            bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
            listen(&socket, backlog).unwrap();
            Listens(path, socket)
        }
    }

    impl Drop for Listens {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_broker_with_too_many_connections_is_asked_again() {
        let door = Listens::new("busy", 4);
        let path = door.0.clone();
        let client = std::thread::spawn(move || {
            lease_within(&Door::named(&path), WANT, ANSWER * 60, Otherwise::ComesBack)
        });
        let answer = |reason, reads| {
            let peer = accept(&door.1).unwrap();
            let mut tag = 0;
            if reads {
                let mut frame = [0; 64];
                let (len, _) = recv(&peer, &mut frame, RecvFlags::empty()).unwrap();
                tag = Request::decode(&frame[..len]).unwrap().0;
            }
            let no = Answer::No(reason, "no".into()).encode(tag);
            send(&peer, &no, SendFlags::NOSIGNAL).unwrap();
        };
        // Before it has read the question, and after that.
        answer(Reason::Busy, false);
        answer(Reason::Busy, true);
        answer(Reason::Quota, true);
        assert!(matches!(client.join().unwrap(), Err(ClientError::No(Reason::Quota, _))));
    }

    #[test]
    fn a_broker_that_is_stopped_costs_no_more_than_the_wait() {
        let door = Listens::new("stopped", 0);
        let began = Instant::now();
        // One waits to be accepted and then to be answered, the next finds no room to wait in.
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let path = door.0.clone();
                std::thread::spawn(move || {
                    lease_within(&Door::named(&path), WANT, Duration::ZERO, Otherwise::Plain)
                })
            })
            .collect();
        for client in clients {
            assert!(matches!(client.join().unwrap(), Err(ClientError::Silent)));
        }
        assert!(began.elapsed() >= ANSWER);
    }

    #[test]
    fn without_a_broker_there_is_no_wait() {
        let door = Door::named("/nonexistent/prezerod.sock".as_ref());
        let answer = lease_within(&door, WANT, Duration::MAX, Otherwise::ComesBack);
        assert!(matches!(answer, Err(ClientError::Unreachable(..))));
    }
}
