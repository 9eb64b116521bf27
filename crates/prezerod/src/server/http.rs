//! Metrics for Prometheus: one small HTTP answer, on a Unix socket or loopback.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use prezero_sys::thread;
use rustix::net::{SocketFlags, accept_with};

use super::listen;

/// Most scrapes at a time.
const MOST: usize = 16;
/// Longest request, bytes.
const REQUEST: usize = 4096;
/// Longest that a scrape may take, ns.
const PATIENCE_NS: u64 = 5_000_000_000;

#[derive(Debug)]
struct Scrape {
    socket: OwnedFd,
    request: Vec<u8>,
    began: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Http {
    listener: Option<OwnedFd>,
    path: Option<PathBuf>,
    scrapes: BTreeMap<u64, Scrape>,
    numbers: u64,
}

impl Http {
    /// Listens on what was inherited, or at `place`, or nowhere.
    pub fn start(inherited: Option<OwnedFd>, place: Option<&str>) -> Result<Http, String> {
        let mut path = None;
        let listener = match (inherited, place) {
            (Some(socket), _) => Some(socket),
            (None, None) => None,
            (None, Some(place)) if place.starts_with('/') => {
                path = Some(PathBuf::from(place));
                Some(listen::bind_stream(place.as_ref())?)
            }
            (None, Some(place)) => {
                let socket = TcpListener::bind(place);
                Some(
                    socket
                        .map_err(|error| format!("metrics: {place}: {error}; give another"))?
                        .into(),
                )
            }
        };
        if let Some(listener) = &listener {
            rustix::io::ioctl_fionbio(listener, true)
                .map_err(|error| format!("metrics: {error}"))?;
        }
        Ok(Http { listener, path, scrapes: BTreeMap::new(), numbers: 0 })
    }

    /// To be polled.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// To be polled.
    pub fn requests(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        self.scrapes.iter().map(|(&id, scrape)| (id, scrape.socket.as_fd()))
    }

    /// Somebody scrapes.
    pub fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Beyond the limit it is closed at once.
        if let Ok(socket) = accept_with(listener, flags)
            && self.scrapes.len() < MOST
        {
            self.numbers += 1;
            let began = thread::monotonic_ns();
            self.scrapes.insert(self.numbers, Scrape { socket, request: vec![], began });
        }
    }

    /// Reads on, and answers with `metrics` once the request is whole.
    pub fn serve(&mut self, id: u64, metrics: impl FnOnce() -> String) {
        let Some(scrape) = self.scrapes.get_mut(&id) else { return };
        let mut bytes = [0u8; REQUEST];
        let whole = match rustix::io::read(&scrape.socket, &mut bytes) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            Ok(0) | Err(_) => {
                self.scrapes.remove(&id);
                return;
            }
            Ok(n) => {
                scrape.request.extend(&bytes[..n]);
                scrape.request.windows(4).any(|end| end == b"\r\n\r\n")
            }
        };
        if whole {
            // What follows a `?` selects nothing here.
            let known = [&b"GET /metrics"[..], b"GET /"].iter().any(|known| {
                let rest = scrape.request.strip_prefix(*known);
                rest.is_some_and(|rest| matches!(rest.first(), Some(b' ' | b'?')))
            });
            let (status, kind, body) = match known {
                true => ("200 OK", "application/openmetrics-text; version=1.0.0", metrics()),
                false => ("404 Not Found", "text/plain", "prezerod: GET /metrics\n".to_owned()),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n",
                body.len()
            );
            // Some kilobytes: a socket that does not take them at once belongs to nobody who reads.
            let _ = rustix::io::write(&scrape.socket, (head + &body).as_bytes());
        }
        if whole || scrape.request.len() > REQUEST {
            self.scrapes.remove(&id);
        }
    }

    /// Ends what takes too long.
    pub fn expire(&mut self, now: u64) {
        self.scrapes.retain(|_, scrape| now.saturating_sub(scrape.began) < PATIENCE_NS);
    }

    /// No more.
    pub fn close(&mut self) {
        self.listener = None;
        if let Some(path) = self.path.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}
